from __future__ import annotations

from typing import Any

import pytest

from parc.backends.deepspeed.capabilities import VERSIONS
from parc.backends.deepspeed.files import DS_CONFIG
from parc.backends.deepspeed.known_keys import (
    PACKAGE,
    check_config_key,
    keys_in_section,
    known_keys,
)
from parc.backends.shared.field_table import flag_table
from parc.backends.value_range import BOUNDS


def test_known_keys_are_sorted_and_name_only_versions_of_the_backend() -> None:
    assert list(known_keys()) == sorted(known_keys())
    for row in known_keys().values():
        others = {name: value for name, value in row.items() if name not in BOUNDS}
        assert {*others.values()} - {row["key"]} <= {*VERSIONS}


@pytest.mark.parametrize("version", VERSIONS)
def test_deepspeed_reads_every_key_that_parc_writes(version: str) -> None:
    for row in flag_table(PACKAGE).of_group(DS_CONFIG).rows:
        section, _, key = row.setting.rpartition(".")
        if row.exists_in(version) and not section.endswith(".params"):
            assert check_config_key(section, key, 1, version) is None, row.setting
            assert section == "" or keys_in_section(section, version), row.setting


CASES: tuple[tuple[str, str, Any, str, str], ...] = (
    ("", "amp", {}, "0.19.7", ""),
    ("", "amp", {}, "0.19.8", "rejects the key 'amp', which older versions support"),
    ("zero_optimization", "mics_shard_size", 8, "0.19.6", ""),
    ("zero_optimization", "mics_shard_size", "auto", "0.19.7", "which older versions support"),
    (
        "zero_optimization",
        "my_own",
        1,
        VERSIONS[-1],
        "rejects the unknown key 'my_own' in zero_optimization",
    ),
    ("zero_optimization", "my_own", "auto", VERSIONS[-1], ""),
    ("zero_optimization", "stages", "auto", VERSIONS[-1], "silently ignores the key 'stages'"),
    ("fp16", "scale_of_my_own", 1, "0.16", ""),
    ("fp16", "scale_of_my_own", 1, "0.17", "rejects the unknown key"),
    ("aio", "my_own", 1, VERSIONS[-1], ""),
    ("", "my_own", 1, VERSIONS[-1], ""),
    ("", "gradient_clipp1ng", 1, VERSIONS[-1], "silently ignores the key"),
    ("", "torch_autocast", {}, "0.16", "silently ignores the key"),
    ("optimizer.params", "lr2", 1, VERSIONS[-1], ""),
)


@pytest.mark.parametrize(("section", "key", "value", "version", "message"), CASES)
def test_a_key_is_read_rejected_or_silently_ignored(
    section: str, key: str, value: Any, version: str, message: str
) -> None:
    found = check_config_key(section, key, value, version)
    if message:
        assert found is not None
        assert message in found.message
    else:
        assert found is None
