"""Encodings inside models of transformers.

    from ropewalk.adapters.transformers import install

    model = install(AutoModelForCausalLM.from_pretrained(name), "comrope-ld", std=0.0)

Importing this enters rules of context extension, an attention function and a mask in transformers' tables, beside its own,
and lets `from_pretrained` load models that were saved with an encoding.
"""

from ropewalk.adapters.transformers import attention_functions, extending, loading
from ropewalk.adapters.transformers.folding import fold_into as fold_into
from ropewalk.adapters.transformers.installing import install as install
from ropewalk.adapters.transformers.installing import installed as installed
from ropewalk.adapters.transformers.installing import uninstall as uninstall
from ropewalk.adapters.transformers.registering import register as register

extending.register()
attention_functions.register()
loading.follow()
