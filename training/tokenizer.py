"""The built-in model's tokenizer: byte-level BPE, a token a digit, learned from the recipe's own text.

python -m training.tokenizer OUTPUT_FOLDER
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.data.documents import TEMPLATE
from training.data.mixture import sample_texts
from training.shape import BUILTIN, END_OF_TEXT, IM_END, SPECIAL_TOKENS

# the family's split: words with one leading mark or space, single digits, punctuation runs, line ends, spaces
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SAMPLE_TEXTS = 30_000


def learn(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    """Learn merges from the texts; the special tokens take the first ids, in order."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise SystemExit(f"the text gave {tokenizer.get_vocab_size()} tokens, not {vocab_size}: add text")
    return tokenizer


def write(tokenizer: Tokenizer, folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    folder.mkdir(parents=True, exist_ok=True)
    compact = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(compact + "\n")
    template = TEMPLATE.read_text()
    content = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "bos_token": None,
        "additional_special_tokens": list(SPECIAL_TOKENS),
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": BUILTIN.max_position_embeddings,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(content, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(template)


def main() -> None:
    write(learn(sample_texts(SAMPLE_TEXTS), BUILTIN.vocab_size), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
