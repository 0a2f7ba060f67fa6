"""OpenEnv: a team behind a server, and a client that plays it."""

import threading
import time

import uvicorn

from pettingllms.adapters.openenv import TeamAction, TeamClient, create_server_app

app = create_server_app("plan_path_v0", size=6, team="proposer-planner", max_turns=3)
server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="websockets-sansio"))
thread = threading.Thread(target=server.run)
thread.start()
while not server.started:
    time.sleep(0.05)
port = server.servers[0].sockets[0].getsockname()[1]
with TeamClient(base_url=f"http://127.0.0.1:{port}").sync() as client:
    result = client.reset(seed=7)
    while not result.done:
        agent = result.observation.agent
        result = client.step(TeamAction(text='#### ["U"]', agent=agent))
        print(f"{agent}: reward {result.reward:.3f}")
server.should_exit = True
thread.join()
