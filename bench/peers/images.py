"""The networks of images with batch norm as PyTorch has them, with the names that `tutti` gives their
tensors: ResNet for CIFAR (He et al. 2016, section 4.2, shortcuts of option A) and a small VGG. Used
by train.py and by tests/nn/vectors.py."""
import torch.nn as nn
import torch.nn.functional as F


def conv(before, after, stride=1):
    return nn.Conv2d(before, after, 3, stride, 1, bias=False)


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.c1, self.n1 = conv(before, after, stride), nn.BatchNorm2d(after)
        self.c2, self.n2 = conv(after, after), nn.BatchNorm2d(after)
        self.stride, self.new = stride, after - before

    def forward(self, x):
        y = self.n2(self.c2(F.relu(self.n1(self.c1(x)), inplace=True)))
        if self.stride > 1 or self.new > 0:
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.new))
        return F.relu(y + x, inplace=True)


class ResNet(nn.Module):
    def __init__(self, depth=20, channels=1, classes=10):
        super().__init__()
        blocks = (depth - 2) // 6
        self.c0, self.n0 = conv(channels, 16), nn.BatchNorm2d(16)
        for stage, (before, after) in enumerate(((16, 16), (16, 32), (32, 64))):
            setattr(self, f"s{stage}",
                    nn.Sequential(*(Block(before if k == 0 else after, after, 2 if k == 0 and stage > 0 else 1)
                                    for k in range(blocks))))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.s2(self.s1(self.s0(F.relu(self.n0(self.c0(x)), inplace=True))))
        return self.fc(x.mean((2, 3)))


class Pair(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.c1, self.n1 = conv(before, after), nn.BatchNorm2d(after)
        self.c2, self.n2 = conv(after, after), nn.BatchNorm2d(after)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.n2(self.c2(F.relu(self.n1(self.c1(x)), inplace=True))), inplace=True), 2)


class VGG(nn.Module):
    def __init__(self, side=28, channels=1, classes=10):
        super().__init__()
        self.s0, self.s1, self.s2 = Pair(channels, 32), Pair(32, 64), Pair(64, 128)
        self.f1, self.f2 = nn.Linear(128 * (side // 8) ** 2, 256), nn.Linear(256, classes)

    def forward(self, x):
        return self.f2(F.relu(self.f1(self.s2(self.s1(self.s0(x))).flatten(1)), inplace=True))
