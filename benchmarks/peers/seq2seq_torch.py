"""The PyTorch peer of bench_seq2seq: a training step of a GRU encoder-decoder with Bahdanau's attention, with Adam.

usage: OMP_NUM_THREADS=2 python3 seq2seq_torch.py [--dtype f32|bf16] [--compile]
Packages: those of requirements.txt; --compile needs g++

The median of six steps after two. The decoder is nn.GRUCell in a loop over words, since its input contains the context
vector computed from the previous state.
"""
import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

from fair import require_fair_setup

WORDS, WIDTH, STATE, LENGTH, ROWS = 8000, 256, 512, 24, 64


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source = nn.Embedding(WORDS, WIDTH)
        self.target = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.GRU(WIDTH, STATE // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRUCell(WIDTH + STATE, STATE)
        self.W = nn.Linear(STATE, STATE)
        self.U = nn.Linear(STATE, STATE, bias=False)
        self.v = nn.Linear(STATE, 1, bias=False)
        self.output = nn.Linear(STATE + STATE + WIDTH, WORDS)

    def forward(self, source, inputs, targets):
        states = self.encoder(self.source(source))[0]
        keys, words = self.U(states), self.target(inputs)
        s = states.new_zeros(source.shape[0], STATE)
        read = []
        for y in words.unbind(1):
            scores = self.v(torch.tanh(self.W(s).unsqueeze(1) + keys)).squeeze(2)
            c = torch.bmm(F.softmax(scores, 1).unsqueeze(1), states).squeeze(1)
            s = self.decoder(torch.cat((y, c), 1), s)
            read.append(torch.cat((s, c, y), 1))
        return F.cross_entropy(self.output(torch.stack(read, 1)).flatten(0, 1), targets.flatten())


def milliseconds(forward, parameters, dtype):
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    words = [torch.randint(WORDS, (ROWS, LENGTH)) for _ in range(3)]
    times = []
    for _ in range(8):
        begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = forward(*words)
        loss.backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[2:])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    threads = require_fair_setup()
    torch.manual_seed(1)
    model = Translator()
    took = milliseconds(torch.compile(model) if a.compile else model, model.parameters(), a.dtype)
    print("torch GRU with Bahdanau's attention %s%s, %d threads: %.1f ms/step, %.0f target tokens/s"
          % (a.dtype, " compiled" if a.compile else "", threads, took, 1e3 * ROWS * LENGTH / took))


main()
