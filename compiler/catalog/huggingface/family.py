"""Declarations of one Hugging Face model family, from ``families/<model_type>.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from parc.compiler.ir.frozen import frozen


class FamilyError(Exception):
    """Error: a family file is incomplete or invalid."""

    def __init__(self, file: str, problem: str) -> None:
        """Build a message such as ``families/x.yaml: keys.ffn is missing``.

        ``problem`` is the text after the colon.
        """
        super().__init__(f"{file}: {problem}")


@frozen
class Family:
    """Declarations of one family file; sections that the file lacks are empty."""

    file: str
    """Name of the family file, for messages."""
    source: str
    """Page or source file from which the defaults are taken."""
    # A config may lack keys, for example those that its class gained after it was written.
    defaults: Mapping[str, Any]
    """Config key -> value that the transformers class uses if a config lacks the key."""
    keys: Mapping[str, str | list[str]]
    """Field of ``ModelSpec`` -> config key, or a list of keys of which the first that is not null
    is read."""
    position: Mapping[str, str]
    """``form`` (a key of POSITION_FORMS) and the config keys that this form reads."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Field of ``ModelSpec`` -> value that does not depend on the config."""
    switches: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Boolean config key -> constants if the key is true (``set``) or not (``unset``)."""
    window: str = ""
    """Reader of sliding windows (a key of WINDOW_FORMS); empty if the family has full attention."""
    ffn_to_hidden: int = 0
    """Ratio of MLP width to hidden size for configs without an MLP width; 0 if the config must
    contain an MLP width."""
    latent: Mapping[str, str] = field(default_factory=dict)
    """Field of ``LatentSpec`` -> config key."""
    linear_attention: Mapping[str, str] = field(default_factory=dict)
    """Field of ``LinearAttentionSpec`` -> config key; layers without linear attention have full
    attention. Without ``full_attention_every``, section ``layer_mixers`` is required."""
    mamba: Mapping[str, str] = field(default_factory=dict)
    """Field of ``MambaSpec`` -> config key, and ``inner`` or ``expand``, the config keys of the
    inner width and of its ratio to the hidden size. With ``step_rank``, ``heads`` and ``head_dim``
    follow from this width. Requires section ``layer_pattern`` or ``layer_mixers``, or the reader
    ``only_mamba``."""
    convolution: Mapping[str, str] = field(default_factory=dict)
    """Field of ``ConvolutionSpec`` -> config key; requires section ``layer_mixers``."""
    layer_mixers: Mapping[str, Any] = field(default_factory=dict)
    """Layers with other token mixers than attention alone. ``mixer``: their token mixer. ``types``:
    config key of a list of names, in which the other layers are attention layers. If the config
    lacks it: ``attention_layers``, config key of the indexes of attention layers, or ``flags``,
    config key of a list with 1 for attention. ``first_layer``: index of the first layer in
    ``attention_layers``, if it is not 0. If the config has none of them: every ``default_every``-th
    layer has attention, from the first one on; 0 for no layer. ``period`` and ``offset``: config
    keys of this distance and of the index of the first layer with attention."""
    indexer: Mapping[str, str] = field(default_factory=dict)
    """Field of ``IndexerSpec`` -> config key."""
    extra_weights: tuple[Mapping[str, Any], ...] = ()
    """Entries of ``ModelSpec.extra_weights``, in which ``parameters`` is a list of products to add
    up. A factor of a product is a number, a config key, or a field of ``ModelSpec`` such as
    ``model.hidden``. ``if``: config key that must be true; without it, the weights always exist."""
    layer_pattern: Mapping[str, str] = field(default_factory=dict)
    """Config keys of a layer pattern: ``letters`` (text) or ``types`` (list), and the number of
    ``layers``."""
    experts: Mapping[str, Any] = field(default_factory=dict)
    """Field of ``ExpertsSpec`` -> config key, and the following keys.

    ``router``: reader of the router (a key of ROUTERS), with the config keys ``normalized``,
    ``method`` and ``expert_bias``. ``shared_count`` (a config key or a number) and
    ``shared_width``: number and width of shared experts. ``layer_types``, ``dense_layers``,
    ``expert_layers``, ``last_layer``: config keys that determine which layers have experts.
    ``shared_gate``: true if the shared expert has a gate. ``dense_if_null``: true if a ``count`` of
    null means a dense model. ``dense_up_to``: largest ``count`` that means a dense model.
    ``offset``: config key of the index of the first layer with experts, of every ``every`` layers.
    ``requires``: like section ``requires``, but only for configs with experts.
    """
    readers: tuple[str, ...] = ()
    """Special readers (keys of SPECIAL_READERS), for rules that other sections cannot express."""
    requires: Mapping[str, Any] = field(default_factory=dict)
    """Config key -> the only supported value, or ``{value, reason}``, or ``{same_as: key,
    reason}``."""
    assumed: Mapping[str, Any] = field(default_factory=dict)
    """Config key -> the value that training frameworks assume; any other value is a warning
    (K06)."""
    ignored_keys: tuple[str, ...] = ()
    """Config keys that do not affect the results of PARC; a ``*`` at the end matches any
    ending."""
    unsupported_parts: str = ""
    """Description of the computations of this family that no field of ``ModelSpec`` represents."""
    assumed_constants: str = ""
    """Description of the constants of this family for which training frameworks assume another
    value. Every computation of the model is expressible, so that no framework rejects it."""
