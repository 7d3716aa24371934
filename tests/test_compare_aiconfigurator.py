"""Requests of the comparison with AIConfigurator."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.accuracy.serving.predictions import read_serving
from benchmarks.compare_aiconfigurator import request_of


def test_a_row_is_asked_with_its_layout_and_the_requests_of_one_rank() -> None:
    rows = read_serving(None).rows
    row = next(one for one in rows if one.layout.dp > 1 and request_of(one, None) is not None)
    first, *_ = request_of(row, 4096) or []
    layout, concurrency = row.layout, row.traffic.concurrency
    assert concurrency is not None
    assert (first["tp_size"], first["attention_dp_size"]) == (layout.tp, layout.dp)
    assert first["moe_tp_size"] * first["moe_ep_size"] == layout.tp * layout.dp
    assert first["batch_size"] == round(concurrency / (layout.replicas * layout.dp))
    assert first["ctx_tokens"] == 4096


def test_a_row_of_a_prefill_pool_or_of_an_unknown_gpu_is_not_asked() -> None:
    row = next(one for one in read_serving(None).rows if request_of(one, None) is not None)
    assert request_of(replace(row, setup=replace(row.setup, prefill_apart=True)), None) is None
    unknown = replace(row.cluster, gpu=replace(row.cluster.gpu, name="new"))
    assert request_of(replace(row, cluster=unknown), None) is None
