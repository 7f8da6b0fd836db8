"""Encodings inside the models of other libraries: `adapters.transformers` and `adapters.timm`, which need these."""
