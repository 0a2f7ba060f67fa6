"""vLLM's server on a simulated card."""

import argparse
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import simulated_ledger as ledger
from transformers import AutoConfig

from vllm import completions

assert os.environ["VLLM_SERVER_DEV_MODE"] == "1"
parser = argparse.ArgumentParser()
for name, default in {"model": "", "port": "8000", "worker-extension-cls": ""}.items():
    parser.add_argument(f"--{name}", default=default)
parser.add_argument("--gpu-memory-utilization", type=float, default=0.92)
parser.add_argument("--tensor-parallel-size", type=int, default=1)
parser.add_argument("--logprobs-mode")
parser.add_argument("--enable-scale-out", action="store_true")
parser.add_argument("--generation-config")
parser.add_argument("--max-loras", type=int, default=0)
parser.add_argument("--max-lora-rank", type=int, default=0)
parser.add_argument("--enable-lora", action="store_true")
parser.add_argument("--host")
parser.add_argument("--dtype")
options = parser.parse_args()
settings = AutoConfig.from_pretrained(options.model)
state = {"version": "start"}
for shard in range(options.tensor_parallel_size):
    assert ledger.claim("server", round(options.gpu_memory_utilization * ledger.CARD_BYTES), shard)


def described():
    return {
        "logprobs_mode": options.logprobs_mode,
        "max_model_len": settings.max_position_embeddings,
        "vocab_size": settings.vocab_size,
        "max_loras": options.max_loras,
        "max_lora_rank": options.max_lora_rank,
    }


def written(body):
    parameters = SimpleNamespace(**body["sampling_params"])
    return [
        {
            "token_ids": one.token_ids,
            "finish_reason": one.finish_reason,
            "logprobs": {"content": [{"logprob": each} for each in one.logprobs.logprobs]},
            "weight_versions": [{"version": state["version"], "start": 0}],
        }
        for one in completions(settings.vocab_size, parameters)
    ]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._send({})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "null")
        if self.path == "/update_weight_version":
            state["version"] = body["new_version"]
        if self.path == "/inference/v1/generate":
            return self._send({"choices": written(body)})
        return self._send({"results": [described()]})

    def _send(self, content):
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(options.port)), Handler).serve_forever()
