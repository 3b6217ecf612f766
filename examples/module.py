"""Your own PyTorch module on two workers, with the same bits as on one: `python examples/module.py`."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from shoal import parallel


class SmallCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.classify = nn.Linear(8 * 3 * 3, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(images))


pixels, digits = load_digits(return_X_y=True)
images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
labels = torch.tensor(digits)
train, test = TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])

weights = []
for workers in (1, 2):
    torch.manual_seed(0)
    network = SmallCNN()
    options = {"strategy": "allreduce", "backend": "threads", "epochs": 3, "batch_size": 64, "learning_rate": 0.01}
    result = parallel.fit(network, train, test, workers=workers, **options)
    weights.append(torch.cat([parameter.detach().flatten() for parameter in network.parameters()]))
    print(workers, "workers:", result.history[-1])

assert torch.equal(*weights), "exact mode promises the same bits"
print("both trainings ended with the same weights, bit for bit")
