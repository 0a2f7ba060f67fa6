from types import SimpleNamespace


class LoRARequest(SimpleNamespace):
    """See vLLM."""

    def __init__(self, lora_name, lora_int_id, lora_path, load_inplace=False):
        super().__init__(lora_name=lora_name, lora_int_id=lora_int_id, lora_path=lora_path)
