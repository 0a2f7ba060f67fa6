"""Libraries take fewer mappings, and nothing can be written to and executed at once."""

import json
import subprocess
import sys

from pettingllms import sandbox

SCRIPT = """
import collections, json, sys
import ctypes, decimal, hashlib, lzma
sys.path.insert(0, sys.argv[1])
from jail import mappings

def look():
    rows = [line.split(maxsplit=5) for line in open("/proc/self/maps")]
    libraries = collections.Counter(row[5].strip() for row in rows if ".so" in row[-1])
    return libraries, [row[1] for row in rows]

before, _ = look()
mappings.merge()
after, rights = look()
values = decimal.Decimal(1) / 3, hashlib.sha256(b"a").hexdigest(), lzma.compress(b"a")
print(json.dumps([before, after, rights, str(values)]))
"""


def test_merge():
    folder = sandbox.__path__[0]
    command = [sys.executable, "-c", SCRIPT, folder]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    before, after, rights, values = json.loads(printed)
    assert before.keys() == after.keys()
    assert sum(after.values()) < 0.7 * sum(before.values())
    assert not any("w" in right and "x" in right for right in rights)
    assert "0.333" in values
