"""Numbers of layers by type, in a range of layers of a model."""

from __future__ import annotations

from parc.compiler.ir import LayerKind, Model
from parc.compiler.ir.frozen import frozen


@frozen
class LayerCounts:
    """Numbers of layers by type. The numbers can be fractions if they are means over stages."""

    attention: float
    """Layers that store keys and values of every token."""
    recurrent: float
    """Layers of linear attention, Mamba or convolutions, which store one state per sequence."""
    dense: float
    """Layers with a dense MLP."""
    routed: float
    """Layers with routed experts."""

    @classmethod
    def from_kinds(cls, kinds: tuple[LayerKind, ...]) -> LayerCounts:
        """Return the number of layers of each type; ``kinds`` has one element per layer."""
        return cls(
            attention=sum(kind.attends for kind in kinds),
            recurrent=sum(kind.recurrent for kind in kinds),
            dense=sum(kind.mlp == "dense" for kind in kinds),
            routed=sum(kind.routed for kind in kinds),
        )

    @classmethod
    def in_range(cls, model: Model, first: int = 0, layers: int | None = None) -> LayerCounts:
        """Return the number of layers of each type in a range of layers.

        The range starts at the layer with index ``first`` and has ``layers`` layers. If ``layers``
        is None, the result is that of the whole model.
        """
        sums = model.cumulative_layer_counts
        before, after = sums[first], sums[-1 if layers is None else first + layers]
        # No loop over the four counts: a serving search calls this a million times.
        return cls(
            after[0] - before[0], after[1] - before[1], after[2] - before[2], after[3] - before[3]
        )

    def multiplied_by(self, share: float) -> LayerCounts:
        """Return these numbers of layers, each multiplied by ``share``."""
        return LayerCounts(
            self.attention * share, self.recurrent * share, self.dense * share, self.routed * share
        )

    @property
    def token_mixers(self) -> float:
        """Return the number of layers with a token mixer."""
        return self.attention + self.recurrent

    @property
    def residual_block_count(self) -> float:
        """Return the number of mixers and MLPs; each of them has one residual connection."""
        return self.token_mixers + self.dense + self.routed
