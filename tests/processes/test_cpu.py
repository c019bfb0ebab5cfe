"""Cores are counted as far as this process may use them."""

import os
import subprocess
import sys

import pytest

from embodied.processes import cpu

COUNT = """
import os, sys
from embodied.processes import cpu
os.sched_setaffinity(0, [int(sys.argv[1])])
print(cpu.count_cores())
"""


def test_cores_that_affinity_forbids_do_not_count():
    allowed = sorted(os.sched_getaffinity(0))
    command = [sys.executable, '-c', COUNT, str(allowed[0])]
    output = subprocess.check_output(command, text=True)
    assert int(output) == 1
    assert 1 <= cpu.count_cores() <= len(allowed)


@pytest.mark.parametrize(
    ('line', 'files', 'cores'),
    [
        ('0::/', {'cpu.max': 'max 100000'}, 8),
        ('0::/', {'cpu.max': '250000 100000'}, 3),
        ('0::/', {}, 8),
        ('0::/a/b', {'a/cpu.max': '200000 100000', 'a/b/cpu.max': 'max 100000'}, 2),
        ('0::/elsewhere', {'cpu.max': '50000 100000'}, 1),
        ('3:cpu:/a', {'cpu/a/cpu.cfs_quota_us': '-1'}, 8),
        (
            '3:cpu,cpuacct:/a',
            {
                'cpu,cpuacct/a/cpu.cfs_quota_us': '400000',
                'cpu,cpuacct/a/cpu.cfs_period_us': '100000',
            },
            4,
        ),
        ('2:memory:/a', {'cpu.max': '1 1'}, 8),
    ],
)
def test_cores_beyond_the_limit_of_a_cgroup_do_not_count(
    tmp_path, monkeypatch, line, files, cores
):
    (tmp_path / 'own').write_text(f'{line}\n')
    for name, text in files.items():
        path = tmp_path / 'groups' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{text}\n')
    monkeypatch.setattr(cpu, 'OWN_CGROUPS', tmp_path / 'own')
    monkeypatch.setattr(cpu, 'CGROUPS', tmp_path / 'groups')
    monkeypatch.setattr(os, 'process_cpu_count', lambda: 8, raising=False)
    assert cpu.count_cores() == cores
