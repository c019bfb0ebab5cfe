"""Network layers: float32 parameters, computation in the dtype of the input."""

from .conv import Conv, ConvLayer
from .init import Init, build
from .linear import BlockLinear, Linear
from .mlp import MLP, Layer
from .norm import RMSNorm

__all__ = [
    'BlockLinear',
    'Conv',
    'Init',
    'ConvLayer',
    'Layer',
    'Linear',
    'MLP',
    'RMSNorm',
    'build',
]
