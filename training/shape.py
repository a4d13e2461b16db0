"""The shape of the built-in model, and the config.json that says so."""

from dataclasses import dataclass

IM_START, IM_END = "<|im_start|>", "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = (
    END_OF_TEXT,
    IM_START,
    IM_END,
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
END_OF_TEXT_ID, IM_START_ID, IM_END_ID = 0, 1, 2

GROUP_WEIGHTS = 32
BITS = 6


@dataclass(frozen=True, slots=True)
class Shape:
    """Widths and counts of a `qwen4_exp` text model, named as its config.json names them."""

    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 1e7
    partial_rotary_factor: float = 0.25
    mrope_section: tuple[int, ...] = (3, 3, 2)
    linear_num_key_heads: int = 4
    linear_num_value_heads: int = 8
    linear_key_head_dim: int = 32
    linear_value_head_dim: int = 32
    linear_conv_kernel_dim: int = 4
    num_experts: int = 16
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 64
    shared_expert_intermediate_size: int = 64
    hc_count: int = 4
    hc_lowrank: int = 32
    ple_layer_ids: tuple[int, ...] = (2,)
    ple_embed_dim: int = 256
    ple_conv_kernel_size: int = 4
    ngram_size: int = 3
    heads_per_ngram: int = 4
    ngram_vocab_size_base: int = 2048
    make_ngram_vocab_size_divisible_by: int = 128
    split_ngram_parts: int = 4
    seed: int = 1234
    indexer_n_heads: int = 4
    indexer_kv_heads: int = 1
    indexer_head_dim: int = 64
    indexer_budget: int = 512
    indexer_compress_ratio: int = 4
    mtp_num_hidden_layers: int = 1
    max_position_embeddings: int = 32768
    rms_norm_eps: float = 1e-6

    @property
    def stream_width(self) -> int:
        """All residual streams side by side."""
        return self.hc_count * self.hidden_size

    @property
    def rotary_dim(self) -> int:
        """The leading values of a head that are rotated."""
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def ngram_heads(self) -> int:
        """Hashed tables, over all n-gram orders."""
        return (self.ngram_size - 1) * self.heads_per_ngram

    @property
    def budget_blocks(self) -> int:
        """Complete blocks a query may select."""
        return self.indexer_budget // self.indexer_compress_ratio

    def is_attention(self, layer: int) -> bool:
        """Every fourth layer attends; the others are Gated DeltaNet."""
        return layer % 4 == 3

    def text_config(self) -> dict[str, object]:
        """The `text_config` of config.json, with the keys of the family's released checkpoints."""
        plain = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("rope_theta", "partial_rotary_factor", "mrope_section")
        }
        plain["ple_layer_ids"] = list(self.ple_layer_ids)
        return plain | {
            "model_type": "qwen4_exp_text",
            "layer_types": [
                "full_attention" if self.is_attention(layer) else "linear_attention"
                for layer in range(self.num_hidden_layers)
            ],
            "full_attention_interval": 4,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": self.partial_rotary_factor,
                "mrope_section": list(self.mrope_section),
                "mrope_interleaved": True,
            },
            "partial_rotary_factor": self.partial_rotary_factor,
            "hidden_act": "silu",
            "output_gate_type": "sigmoid",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "norm_topk_prob": True,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": END_OF_TEXT_ID,
            "pad_token_id": None,
            "dtype": "bfloat16",
        }


BUILTIN = Shape()
