"""A model directory's text files, small: a byte-level tokenizer trained on a few lines, a ChatML template."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTROLS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)

TRAINING_LINES = (
    "Hello there, how are you today?",
    "The quick brown fox jumps over the lazy dog. 0123456789",
    "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
    "Grüße aus Zürich, ça va? 日本語 👋",
    "system user assistant tool",
)

TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}\
{{ '<|im_end|>\\n' }}{% endif %}
{%- if reasoning_effort is defined %}
    {%- if reasoning_effort not in ['low', 'medium', 'xhigh'] %}
        {{- raise_exception('no such effort') }}
    {%- endif %}
    {{- '<|im_start|>system\\neffort ' + reasoning_effort + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and not loop.first %}
        {{- raise_exception('the system message must come first') }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' and message.reasoning_content is defined %}
        {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
    {%- endif %}
    {{- message.content | trim }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
        {%- for key, value in call.function.arguments | items %}
            {{- '<parameter=' + key + '>\\n' }}
            {{- value if value is string else value | tojson }}{{ '\\n</parameter>\\n' }}
        {%- endfor %}
        {{- '</function>\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n<think>\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{ '\\n</think>\\n\\n' }}{% endif %}
{%- endif %}
"""


def full_tokenizer() -> Tokenizer:
    """The tokenizer as the library itself would use it, control tokens and all."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in CONTROLS[:3]])
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(CONTROLS[:3]),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_LINES * 4, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in CONTROLS[3:]])
    return tokenizer


def write_model_text(directory: Path, *, generation: dict[str, object] | None = None) -> None:
    """Write what `load_chat_text` reads."""
    tokenizer = full_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"eos_token": {"content": "<|im_end|>"}, "chat_template": TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    ends = [tokenizer.token_to_id(text) for text in ("<|im_end|>", "<|endoftext|>")]
    generation = {"eos_token_id": ends, "do_sample": False, **(generation or {})}
    (directory / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
