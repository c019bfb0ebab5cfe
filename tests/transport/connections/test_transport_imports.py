"""Processes that only talk do not pay for what only agents need."""

import subprocess
import sys

import pytest

MODULES = ['server', 'client', 'portal.server', 'portal.client', 'keys']


@pytest.mark.parametrize('module', MODULES)
def test_the_transport_never_imports_jax(module):
    code = (
        f'import sys, embodied.transport.{module}\n'
        f"heavy = {{'jax', 'jaxlib', 'dreamerv3', 'gymnasium'}} & set(sys.modules)\n"
        f'assert not heavy, heavy'
    )
    subprocess.run([sys.executable, '-c', code], check=True)


def test_a_portal_process_is_not_needed_for_zmq():
    code = (
        'import sys, embodied.transport.server, embodied.transport.client\n'
        "assert 'portal' not in sys.modules"
    )
    subprocess.run([sys.executable, '-c', code], check=True)
