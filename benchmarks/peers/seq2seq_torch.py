"""The PyTorch side of bench_seq2seq: one training step of a GRU encoder-decoder with Bahdanau's attention, Adam included.

    python3 benchmarks/peers/seq2seq_torch.py [threads] [f32|bf16]

Eager and compiled, in milliseconds: the median of ten steps after two. The decoder is nn.GRUCell in a loop over words, as
its input holds what was attended to from the state before.
"""
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

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


def milliseconds(model, dtype):
    step_of = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    words = [torch.randint(WORDS, (ROWS, LENGTH)) for _ in range(3)]
    times = []
    for _ in range(12):
        begin = time.perf_counter()
        step_of.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(*words)
        loss.backward()
        step_of.step()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[2:])


if len(sys.argv) > 1:
    torch.set_num_threads(int(sys.argv[1]))
dtype = sys.argv[2] if len(sys.argv) > 2 else "f32"
torch.manual_seed(1)
print(f"PyTorch {torch.__version__}, GRU with Bahdanau's attention, {dtype}, {torch.get_num_threads()} threads:", end=" ")
print(f"{milliseconds(Translator(), dtype):.1f} ms a step", end="", flush=True)
try:
    print(f", compiled {milliseconds(torch.compile(Translator()), dtype):.1f} ms")
except Exception as e:  # no compiler for it, say
    print(f", compiled: {type(e).__name__}")
