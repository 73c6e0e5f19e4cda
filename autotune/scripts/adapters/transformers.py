"""Transformers and what comes with it: the hub, data sets, tokenizers, diffusers."""

from __future__ import annotations

from autotune.scripts.adapters.adapter import Adapter

TRANSFORMERS = Adapter(
    packages=("transformers",),
    variables={"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"},
    offline={
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_EVALUATE_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "DIFFUSERS_OFFLINE": "1",
    },
    caches={
        "HF_HOME": ".cache/huggingface",
        "HF_HUB_CACHE": ".cache/huggingface/hub",
        "HF_DATASETS_CACHE": ".cache/huggingface/datasets",
        "HF_MODULES_CACHE": ".cache/huggingface/modules",
    },
    old_names=("TRANSFORMERS_CACHE", "HUGGINGFACE_HUB_CACHE", "PYTORCH_TRANSFORMERS_CACHE"),
)
