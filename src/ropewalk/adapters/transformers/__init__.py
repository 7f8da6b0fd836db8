"""Encodings inside models of transformers.

    from ropewalk.adapters.transformers import install

    model = install(AutoModelForCausalLM.from_pretrained(name), "comrope-ld", std=0.0)

Importing this module adds context extension rules, attention functions and a mask to transformers' registries, without
replacing any, and wraps methods of `PreTrainedModel` so that models with an encoding can be saved and loaded.
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
