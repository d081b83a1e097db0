"""What each model server's `/metrics` shows: the families that tell it, among others that do not."""

_PROCESS = """\
# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
"""

_HISTOGRAM = """\
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.001",model_name="m"} 0.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 3.0
vllm:time_to_first_token_seconds_count{model_name="m"} 3.0
vllm:time_to_first_token_seconds_sum{model_name="m"} 0.4
"""


def gauge(name, value, labels=""):
    inside = f"{{{labels}}}" if labels else ""
    return f"# HELP {name} A gauge.\n# TYPE {name} gauge\n{name}{inside} {value}\n"


def vllm(*, kv="vllm:kv_cache_usage_perc", block_size="16", blocks="27000", lora=()):
    """`lora` are (time, running, waiting) of each series of the LoRA metric."""
    text = _PROCESS + _HISTOGRAM
    text += gauge("vllm:num_requests_running", 2.0, 'engine="0",model_name="m"')
    text += gauge("vllm:num_requests_waiting", 1.0, 'engine="0",model_name="m"')
    text += gauge(kv, 0.25, 'engine="0",model_name="m"')
    text += gauge(
        "vllm:cache_config_info",
        1.0,
        f'block_size="{block_size}",cache_dtype="auto",engine="0",num_gpu_blocks="{blocks}"',
    )
    if lora:
        text += "# HELP vllm:lora_requests_info Running stats on lora requests.\n"
        text += "# TYPE vllm:lora_requests_info gauge\n"
    for time, running, waiting in lora:
        labels = f'max_lora="4",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
        text += f"vllm:lora_requests_info{{{labels}}} {time}\n"
    return text


def old_vllm(**options):
    return vllm(kv="vllm:gpu_cache_usage_perc", **options)


def vllm_ranks(*blocks):
    """Several data-parallel ranks behind one port."""
    text = gauge("vllm:num_requests_waiting", 1.0, 'engine="0"')
    text += "# TYPE vllm:cache_config_info gauge\n"
    for rank, count in enumerate(blocks):
        text += f'vllm:cache_config_info{{block_size="16",engine="{rank}",num_gpu_blocks="{count}"}} 1.0\n'
    return text


def sglang(*, page_size="1", pages="380000"):
    text = _PROCESS
    text += gauge("sglang:num_running_reqs", 3.0, 'model_name="m"')
    text += gauge("sglang:num_queue_reqs", 0.0, 'model_name="m"')
    text += gauge("sglang:token_usage", 0.5, 'model_name="m"')
    return text + gauge("sglang:cache_config_info", 1.0, f'page_size="{page_size}",num_pages="{pages}"')


def triton():
    """Triton without its TensorRT-LLM backend."""
    text = gauge("nv_inference_pending_request_count", 0, 'model="m",version="1"')
    return text + (
        "# HELP nv_inference_exec_count Number of model executions performed\n"
        "# TYPE nv_inference_exec_count counter\n"
        'nv_inference_exec_count{model="m",version="1"} 17\n'
    )


def triton_tensorrt_llm():
    """Triton with its TensorRT-LLM backend: the families of both."""
    text = triton() + "# TYPE nv_trt_llm_request_metrics gauge\n"
    for kind, value in (("waiting", 4), ("scheduled", 2), ("max", 512)):
        text += f'nv_trt_llm_request_metrics{{model="m",request_type="{kind}",version="1"}} {value}\n'
    text += "# TYPE nv_trt_llm_kv_cache_block_metrics gauge\n"
    for kind, value in (("fraction", 0.1), ("tokens_per", 64), ("max", 6239), ("used", 3)):
        labels = f'kv_cache_block_type="{kind}",model="m",version="1"'
        text += f"nv_trt_llm_kv_cache_block_metrics{{{labels}}} {value}\n"
    return text


def trtllm_serve():
    text = gauge("trtllm_num_requests_waiting", 0) + gauge("trtllm_num_requests_running", 1)
    return text + gauge("trtllm_kv_cache_utilization", 0.2) + gauge("trtllm_kv_cache_tokens_per_block", 32)
