"""Backbones of a few kilobytes: the real architectures and the manner of their tokenizers, with random weights."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

FAMILIES = ("llama", "qwen3", "gemma2", "phi3")

SENTENCES = (
    "The patient is a woman of 63 years who was admitted as an emergency and stayed for 4 days.",
    "The diagnoses are heart failure, diabetes and pneumonia; insulin was given, metformin was not.",
    "Did the patient die in hospital? Answer with yes or no. The answer is no. The answer is yes.",
    "A flow to port 443 lasted 12 seconds and carried 1,520 bytes in 9 packets: is it an attack or benign?",
    "age: 70, ward: surgery, result: high, medication: none, readmitted: no, procedures: 2",
)

CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<start_of_turn>' + message['role'] + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
PHI = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"
)
#: Special tokens (the first one's number is 0), the named ones among them, and the chat template.
MANNERS: dict[str, tuple[list[str], dict[str, str], str]] = {
    "llama": (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"},
        CHATML,
    ),
    "qwen3": (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        CHATML,
    ),
    "gemma2": (
        ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"],
        {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"},
        GEMMA,
    ),
    "phi3": (
        ["<|endoftext|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"],
        {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
        PHI,
    ),
}
#: Rows of the embedding beyond the tokenizer's: the real Qwen3 has spare ones too.
SPARE = {"qwen3": 27}


def miniature(family: str, folder: Path, *, tied: bool | None = None, chat: bool = True) -> Path:
    """Save a miniature of a family as a Hugging Face folder; the same weights every time."""
    tokenizer = _tokenizer(family, chat)
    config = _config(family, len(tokenizer) + SPARE.get(family, 0), tied)
    config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    config.bos_token_id = tokenizer.bos_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer(family: str, chat: bool) -> PreTrainedTokenizerFast:
    special, named, template = MANNERS[family]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)
    fast.add_special_tokens({"additional_special_tokens": [t for t in special if t not in named.values()]})
    fast.chat_template = template if chat else None
    return fast


def _config(family: str, vocabulary: int, tied: bool | None) -> PretrainedConfig:
    shape = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.2,  # the usual 0.02 makes the logits of so small a model all but equal
    }
    match family:
        case "llama":
            return LlamaConfig(**shape, num_hidden_layers=3, tie_word_embeddings=tied is not False)
        case "qwen3":
            return Qwen3Config(**shape, num_hidden_layers=2, head_dim=16, tie_word_embeddings=tied is not False)
        case "gemma2":
            return Gemma2Config(
                **shape,
                num_hidden_layers=3,
                head_dim=16,
                query_pre_attn_scalar=16,
                sliding_window=64,
                final_logit_softcapping=30.0,
                attn_logit_softcapping=50.0,
                tie_word_embeddings=tied is not False,
            )
        case "phi3":
            return Phi3Config(**shape, num_hidden_layers=2, tie_word_embeddings=tied is True)
    raise ValueError(f"no miniature of {family!r}; there are {', '.join(FAMILIES)}")
