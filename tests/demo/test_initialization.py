"""How the demo's model begins."""

import torch

from bertsmith.demo.initialization import LOOKS, neighbour_looks, waves


def test_heads_begin_by_looking_at_neighbours() -> None:
    count, width = 32, 128
    states = waves(count, width)
    query, key = neighbour_looks(width)
    queries, keys = (states @ matrix.T for matrix in (query, key))
    scores = torch.einsum("ihd,jhd->hij", queries.view(count, 4, 32), keys.view(count, 4, 32))
    for head, look in enumerate(LOOKS):
        inside = range(2, count - 2)
        assert [int(scores[head, place].argmax()) for place in inside] == [
            place + look for place in inside
        ]
