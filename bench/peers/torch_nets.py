"""The convolutional networks of Quiver's settings in PyTorch: `nature` and `small`."""

from __future__ import annotations

from torch import nn

# Of each network: (channels out, kernel, stride) of its convolutions, and the units of its hidden layer.
NETWORKS = {
    "nature": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    "small": (((16, 8, 4), (32, 4, 2)), 256),
}

# Frames of a state, and the side of each.
CHANNELS, SIDE = 4, 84


def network(name: str, actions: int, space_to_depth: bool = False) -> nn.Sequential:
    """The network without any head other than a linear layer.

    With `space_to_depth` its input is the same frames with each 4x4 block of pixels as 16 channels, which makes the first
    convolution, of kernel 8 and stride 4, one of kernel 2 and stride 1 with as many weights.
    """
    convolutions, hidden = NETWORKS[name]
    layers: list[nn.Module] = []
    channels, side = CHANNELS, SIDE
    for index, (out, kernel, stride) in enumerate(convolutions):
        if index == 0 and space_to_depth:
            channels, side, kernel, stride = channels * stride**2, side // stride, kernel // stride, 1
        layers += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
        channels, side = out, (side - kernel) // stride + 1
    features = channels * side**2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, actions))
