"""The fork server and its locks: what runs in the process that forks for every program.

Nothing here imports anything of `pettingllms`; the folder is started as a script by a bare
interpreter (`python -s -S -P`), so the server holds neither our modules nor anybody's secrets.
"""
