"""
Makes the tiny random-weight models that a real vLLM serves without a GPU; downloads nothing.

A stand-alone script, run by the engine's own Python (it needs torch, transformers and tokenizers, which the project's
environment does not have):

    .engine/venv/bin/python k3lib/launch/tiny_models.py --into .engine/models [--only tiny-hybrid]

| model | architecture | what it is for |
|---|---|---|
| tiny-hybrid | Qwen3-Next, 3 linear-attention layers and 1 full | the cache class of Kimi K3 |
| tiny-dense | Qwen3, 2 layers | the plain case beside it |
| slow-dense | Qwen3, 62 M parameters | requests that last long enough to be interrupted |

One token is one byte, so the length of a prompt is known without a tokenizer. Weights are random, with one exception:
the output layer is built so that only printable ASCII and never an end mark comes out. Undecodable bytes would be held
back by a streaming server, which blurs every time measured from the stream; and an answer of known length, the output
limit, makes two runs comparable. A `stop` text in the request ends an answer early.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

CONTEXT_TOKENS = 32_768
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
"""Single tokens that stay visible in the text; vLLM's hermes and qwen3 parsers look for them."""

ALWAYS_ON = 0
"""The channel of the residual stream that is the same for every token: what an output bias can be built from."""
SILENCE = -60.0
"""Output weight on that channel for what must not be said; the logits of the rest lie within a few units of zero."""

CHAT_TEMPLATE = """\
{%- macro text(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content -%}{%- for part in content -%}{{ part.text if part.text is defined else '' }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- if tools -%}
{{- '<|im_start|>system\\nTools, one JSON object a line:\\n' -}}
{%- for tool in tools -%}{{ tool | tojson }}{{- '\\n' -}}{%- endfor -%}
{{- 'To call one: <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.role == 'tool' -%}
<tool_response>{{ text(message.content) }}</tool_response>
{%- else -%}
{{ text(message.content) }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


@dataclass(frozen=True)
class TinyModel:
    """
    What one model is made of.

    Args:
        name: Name of its folder.
        config: Name of the configuration class in transformers.
        sizes: Arguments of that class, besides vocabulary and context.
        seed: Seed of the weights.
    """

    name: str
    config: str
    sizes: dict[str, Any] = field(hash=False)
    seed: int = 0


TINY_MODELS = (
    TinyModel(
        "tiny-hybrid",
        "Qwen3NextConfig",
        {
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "linear_conv_kernel_dim": 4,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 64,
            "linear_value_head_dim": 64,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
        },
    ),
    TinyModel(
        "tiny-dense",
        "Qwen3Config",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
        },
    ),
    TinyModel(
        "slow-dense",
        "Qwen3Config",
        {
            "hidden_size": 768,
            "intermediate_size": 3136,
            "num_hidden_layers": 7,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "head_dim": 64,
        },
    ),
)


def make_model(model: TinyModel, into: Path) -> bool:
    """
    Make one model, or find it there already.

    Args:
        model: What to make.
        into: The folder that holds the models; the model gets a folder of its name in it.

    Returns:
        True if it was made, False if it was there, made from the same recipe by the same libraries.
    """
    recipe = compute_recipe(model)
    target = into / model.name
    if read_recipe(target) == recipe:
        return False
    draft = into / f".{model.name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    tokenizer = _make_tokenizer(draft)
    parameters = _make_weights(model, tokenizer, draft)
    (draft / "MODEL.md").write_text(_render_note(model, parameters), encoding="utf-8")
    (draft / "made.json").write_text(json.dumps({"recipe": recipe}) + "\n", encoding="utf-8")
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    return True


def compute_recipe(model: TinyModel) -> str:
    """The identity of what would be made: this script, the sizes, and the libraries that draw the weights."""
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers")}
    script = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    text = json.dumps([asdict(model), versions, script], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_recipe(folder: Path) -> str | None:
    """The recipe that a finished model was made from, or None if there is no finished model."""
    try:
        return str(json.loads((folder / "made.json").read_text(encoding="utf-8"))["recipe"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make_tokenizer(folder: Path) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-not-found]
    from transformers import PreTrainedTokenizerFast  # type: ignore[import-not-found]

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*SPECIALS, *MARKS, *letters])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    core.add_tokens([AddedToken(token, special=False) for token in MARKS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def _make_weights(model: TinyModel, tokenizer: Any, folder: Path) -> int:
    import torch  # type: ignore[import-not-found]
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(model.seed)
    config = getattr(transformers, model.config)(
        vocab_size=len(tokenizer),
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        # Layers as loud as their input: with the usual 0.02 a network this narrow forgets all but the last token.
        initializer_range=model.sizes["hidden_size"] ** -0.5,
        **model.sizes,
    )
    network = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        _quieten(network, tokenizer)
    network.save_pretrained(folder)
    return sum(weight.numel() for weight in network.parameters())


def _quieten(network: Any, tokenizer: Any) -> None:
    """Give the output layer a bias against all but printable ASCII, over a channel that no layer writes to."""
    printable = [number for token, number in tokenizer.get_vocab().items() if _is_printable(token)]
    embedding, output = network.get_input_embeddings().weight, network.get_output_embeddings().weight
    embedding.normal_(std=1.0)
    embedding[:, ALWAYS_ON] = 1.0
    for name, weight in network.named_parameters():
        if name.removesuffix(".weight").endswith(("o_proj", "out_proj", "down_proj")):
            weight[..., ALWAYS_ON, :] = 0.0
    output[:, ALWAYS_ON] = SILENCE
    output[printable, ALWAYS_ON] = 0.0


def _is_printable(letter: str) -> bool:
    # The byte-level alphabet writes a space as U+0120 and shows other printable ASCII as itself.
    return letter == "\u0120" or (len(letter) == 1 and "!" <= letter <= "~")


def _render_note(model: TinyModel, parameters: int) -> str:
    return (
        f"# {model.name}\n\n"
        f"Random weights (seed {model.seed}), {parameters:,} parameters, made by k3lib/launch/tiny_models.py.\n"
        "It was trained on nothing and knows nothing: its answers are printable noise as long as the output limit.\n"
        "It serves to run vLLM's real code on a machine without a GPU, and for nothing else.\n\n"
        f"Architecture: {model.config.removesuffix('Config')}. Tokenizer: one token a byte, "
        f"context {CONTEXT_TOKENS:,} tokens.\n"
    )


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code (2 where this Python lacks torch or transformers)."""
    names = [model.name for model in TINY_MODELS]
    parser = argparse.ArgumentParser(description="Tiny random-weight models for a vLLM without a GPU.")
    parser.add_argument("--into", type=Path, required=True, help="folder that holds the models")
    parser.add_argument("--only", action="append", choices=names, help="make this one (may be repeated; default: all)")
    args = parser.parse_args(argv)
    for model in TINY_MODELS:
        if args.only and model.name not in args.only:
            continue
        began = time.monotonic()
        try:
            made = make_model(model, args.into)
        except ModuleNotFoundError as error:
            print(
                f"{model.name} cannot be made by this Python\n"
                "  expected: a Python with torch, transformers and tokenizers\n"
                f"  evidence: {sys.executable}: {error}\n"
                "  next:     run this script with .engine/venv/bin/python",
                file=sys.stderr,
            )
            return 2
        verb = f"made in {time.monotonic() - began:.1f} s" if made else "is there"
        print(f"{model.name:<12} {verb}: {args.into / model.name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
