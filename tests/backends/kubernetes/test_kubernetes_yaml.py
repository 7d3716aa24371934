"""Tests of the YAML text of Kubernetes objects: it parses to exactly the given objects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from parc.backends.kubernetes.yaml_documents import yaml_text

BREAKS = "\n\r\x85\u2028\u2029\ufeff\t\x0b\x1f"


def parsed(text: str) -> object:
    return list(YAML(typ="safe", pure=True).load_all(text))


@given(st.text(st.sampled_from(BREAKS + "a :'#-|%") | st.characters(codec="utf-8"), max_size=12))
def test_every_text_survives_in_a_value(text: str) -> None:
    objects = [{"kind": "ConfigMap", "data": {"a": text, "b": f"#!/bin/sh\n{text}\n"}}]
    assert parsed(yaml_text(objects)) == objects


@pytest.mark.parametrize("words", [10, 2048])
def test_a_list_of_pod_names_stays_on_one_line(words: int) -> None:
    names = " ".join(f"service-{index}-15.service" for index in range(words))
    assert f"value: {names}\n" in yaml_text([{"value": names}])
