"""The `qwen4_exp` family: Gated DeltaNet, sparse attention, hyper-connections, n-gram embedding, MoE, MTP."""
