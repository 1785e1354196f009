"""Decoder-only transformers in Flax NNX, written to be profiled.

Names of arrays end in their shape, one letter a dimension (``q_BxTxHxC``). The letters, everywhere under ``models``
and ``workloads``:

    B  sequences in the batch            H  query heads
    T  positions computed now            K  key and value heads
    S  positions attended to             G  query heads per key/value head, H / K
    L  layers                            C  channels of one head (head_dim)
    D  width of the residual stream      F  width of the MLP
    V  vocabulary, padded to its shards  E  experts
    P  rows of the learned position table

``transformer.Transformer`` is the model, ``flops`` its closed form, ``text`` the sample that it trains on.
``jaxprof.workloads.module`` says what another model must offer to be profiled in its place.
"""
