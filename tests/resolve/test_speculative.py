"""The draft of speculative decoding is one layer of the model, for every model of the catalog."""

from __future__ import annotations

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts import params
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.resolve.resolve_speculative import resolve_speculative
from parc.compiler.spec.service_spec import SpeculativeSpec

LIBRARY = Library(None)


@pytest.mark.parametrize("method", ["mtp", "eagle", "eagle3"])
def test_the_draft_of_every_model_has_one_layer_without_the_shape_of_another(method: str) -> None:
    for name in LIBRARY.names("models"):
        sink = Sink()
        model = resolve_model(name, LIBRARY, sink)
        assert model is not None
        checkpoint = None if method == "mtp" else "own/head"
        spec = SpeculativeSpec(method=method, checkpoint=checkpoint)
        found = resolve_speculative(spec, model, LIBRARY, sink)
        assert found is not None, name
        draft = found.model
        assert draft is not None
        (kind,) = draft.layer_kinds
        routed = method == "mtp" and model.experts is not None
        assert (kind.mixer, kind.mlp) == ("attention", "experts" if routed else "dense"), name
        assert 0 < params.total_params(draft) < params.total_params(model), name
