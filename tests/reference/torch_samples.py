"""PyTorch's own samples (torch.testing._internal, in its wheel) and a grid of extreme values, run by heed and compared.

    torch_samples.py BUILD/tests/tools/op_server [--only REGEX] [--verbose]

What heed has an op for stands in torch_samples_ops.py: how each of PyTorch's ops is said in heed's. Forward and backward,
float32, float64, bfloat16, int32 and bool. A result passes that agrees with PyTorch's, or is no farther from PyTorch's
float64 result than PyTorch's own; a refusal passes whose reason is in REFUSED; a difference whose reason is in KNOWN.
Exit codes: 0 all passed, 1 something did not, 2 bad usage, 77 skipped: no PyTorch 2.13 here.
"""
import argparse
import collections
import json
import math
import re
import struct
import subprocess
import sys
import warnings

SKIPPED = 77

try:
    import numpy as np
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db
except ImportError as error:
    print(f'skipped: {sys.executable} lacks a package: {error}; HEED_TORCH_PYTHON names a Python with torch 2.13, '
          'numpy, expecttest and pytest')
    sys.exit(SKIPPED)
if not torch.__version__.startswith('2.13.'):
    print(f'skipped: {sys.executable} has PyTorch {torch.__version__}; HEED_TORCH_PYTHON names a Python with 2.13')
    sys.exit(SKIPPED)

import torch_samples_ops as table  # noqa: E402  (wants PyTorch)

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool]
NAMES = {torch.float32: 'float32', torch.float64: 'float64', torch.bfloat16: 'bfloat16', torch.int32: 'int32',
         torch.bool: 'bool8'}
TYPES = {name: dtype for dtype, name in NAMES.items()}
CLOSE = {torch.float32: 3e-5, torch.float64: 1e-10, torch.bfloat16: 2e-2}

# Errors of heed's that are no fault, by their words.
REFUSED = [
    (r'their dtypes must be the same|both float32 or both float64|the dtypes must be the same|it must be \[\d+\] float'
     r'|both must be float64, or each|float64, or int32, or each|bias must be|one dtype and of the same shape',
     'nothing is promoted: dtypes must match'),
    (r'must be floating|must be float32 or float64|float32 or float64|must be bool8|both must be float32|\[V, D\]',
     'the op has no such dtype'),
    (r'must hold (it|them) exactly', 'an int32 or bool8 tensor holds its number exactly'),
    (r'int32 holds at (most|least)', 'integer sums are int32, checked'),
    (r'norm: p is .* must be greater than 0', 'norms are of p > 0'),
    (r'x and target|both must have|target is|the shapes must be the same', 'losses and indices do not broadcast'),
    (r'the axes that are reduced must have elements', 'no greatest of no elements'),
    (r'it must have a last axis of 1 element or more', 'a norm of rows of no elements'),
    (r'more than 8 axes|at most 8', 'at most eight axes'),
    (r'in \[0, ', 'values out of range'),
    (r'q is .* k is|is undefined|\[B, H, T, D\]', 'shapes of attention'),
    (r'delta is 0|it must be greater than 0|above 0|must not be negative', 'an option at which the op is degenerate'),
    (r'the strides do not allow a view', 'a view of what was contiguous in the sample'),
    (r'axis is .* must lie in', 'an axis that a scalar lacks'),
    (r'both need an axis', 'products of scalars'),
    (r'class weights are', 'nothing is promoted: dtypes must match'),
    (r"mask must broadcast to x's shape", 'masked_fill keeps the shape of x'),
    (r'no such op of a tensor and a number', 'an op of two tensors'),
]

# Differences that are meant: op, part (result or gradient), dtype; and why.
KNOWN = [
    (r'^(topk|sort|msort|argsort|kthvalue) bfloat16', 'of equal values PyTorch gives any first; heed the first'),
]


def heed_dtype(t):
    return NAMES.get(t.dtype)


class Server:
    """The op_server process, and the framing of its messages."""

    def __init__(self, path):
        self.path = path
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, head, tensors):
        text = json.dumps(head).encode()
        self.process.stdin.write(struct.pack('<Q', len(text)) + text + b''.join(map(raw, tensors)))
        self.process.stdin.flush()
        size = self.process.stdout.read(8)
        if len(size) < 8:
            code = self.process.wait()
            self.start()
            return {'error': f'CRASH: op_server ended with {code}'}
        reply = json.loads(self.process.stdout.read(struct.unpack('<Q', size)[0]))
        for part in ('outputs', 'gradients'):
            reply[part] = [None if d is None else self.tensor(d) for d in reply.get(part, [])]
        return reply

    def tensor(self, described):
        dtype, shape = TYPES[described['dtype']], described['shape']
        count = math.prod(shape)
        data = bytearray(self.process.stdout.read(count * dtype.itemsize))
        return torch.frombuffer(data, dtype=dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def raw(t):
    t = t.detach().contiguous()
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    return t.numpy().tobytes()


def text_of(value):
    """Numbers that JSON has no words for, as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {k: text_of(v) for k, v in value.items()}
    return [text_of(v) for v in value] if isinstance(value, (list, tuple)) else value


def flat(outputs):
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [t for o in outputs for t in flat(o)] if isinstance(outputs, (list, tuple)) else []


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in leaves(v)]
    return [t for v in value.values() for t in leaves(v)] if isinstance(value, dict) else []


def with_leaves(value, f):
    if isinstance(value, torch.Tensor):
        return f(value)
    if isinstance(value, tuple) and hasattr(value, '_fields'):
        return type(value)(*(with_leaves(v, f) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(with_leaves(v, f) for v in value)
    return {k: with_leaves(v, f) for k, v in value.items()} if isinstance(value, dict) else value


def distances(a, b, scale):
    """|a - b| relative to max(|b|, scale), elementwise; 0 where both are NaN or the same, inf where only one is not
    finite."""
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    d = ((a - b).abs() / b.abs().clamp(min=scale)).nan_to_num(nan=math.inf, posinf=math.inf)
    return torch.where(same, torch.zeros_like(d), d)


class Counts:
    def __init__(self):
        self.ops, self.samples, self.results, self.gradients = set(), 0, 0, 0
        self.refused, self.skipped, self.known = (collections.Counter() for _ in range(3))
        self.differences, self.excused = [], 0


class Runner:
    def __init__(self, server, verbose):
        self.server, self.verbose, self.n = server, verbose, Counts()

    def difference(self, name, what, detail):
        for pattern, reason in KNOWN:
            if re.search(pattern, f'{name} {what}'):
                self.n.known[reason] += 1
                return
        self.n.differences.append((name, what, detail))
        if self.verbose:
            print('DIFFERENCE', name, what, detail, flush=True)

    def compare(self, name, what, got, want, exact):
        """`exact`: the result in float64, lazily."""
        if tuple(got.shape) != tuple(want.shape):
            return self.difference(name, what, f'shape {tuple(got.shape)} for {tuple(want.shape)}')
        if not want.dtype.is_floating_point or not got.dtype.is_floating_point:
            if not torch.equal(got.double(), want.double()):
                self.difference(name, what, 'integers or masks differ')
            return None
        if got.numel() == 0:
            return None
        tolerance = max(CLOSE[got.dtype], CLOSE.get(want.dtype, 0))
        if self.rounded_often and torch.bfloat16 in (got.dtype, want.dtype):
            tolerance *= 4  # said as several ops: bfloat16 is rounded after each
        finite = want.double()[want.double().isfinite()].abs()
        least = 1e-40 if name.startswith('edge.') else 1e-2
        scale = min(1.0, max(least, float(finite.max()))) if finite.numel() and finite.max() > 0 else 1.0
        d = distances(got, want, scale)
        if float(d.max()) <= tolerance:
            return None
        try:
            truth = exact()
        except Exception:  # not in float64
            truth = None
        if truth is not None and truth.shape == want.shape:
            mine, theirs = distances(got, truth, scale), distances(want, truth, scale)
            # What float64 holds and the type does not counts as infinity.
            limit = torch.finfo(got.dtype).max
            over = truth.double().abs() > limit * (1 - 1e-3)
            ok = (d <= tolerance) | (mine <= theirs * 1.01 + tolerance) | (over & (got.double().abs() > limit * 0.99))
            if bool(ok.all()):
                self.n.excused += 1
                return None
            d = torch.where(ok, torch.zeros_like(d), d)
        i = int(d.flatten().argmax())
        self.difference(name, what, f'{tuple(want.shape)}[{i}]: heed {got.flatten()[i].item()!r}, '
                                    f'PyTorch {want.flatten()[i].item()!r}' +
                        (f', float64 {truth.flatten()[i].item()!r}' if truth is not None else ''))
        return None

    def run(self, name, f, call, args, kwargs, grad=True, seed=1):
        """f(*args, **kwargs) by PyTorch against call(program, *symbols, **symbols) by heed."""
        tensors = list({id(t): t for t in leaves((args, kwargs))}.values())
        if not tensors:
            return self.skip(name, 'no tensor')
        if any(t.dtype.is_complex or t.layout != torch.strided or t.device.type != 'cpu' for t in tensors):
            return self.skip(name, 'complex, sparse or elsewhere')
        program = table.Program()
        wants = [grad and t.requires_grad and t.dtype.is_floating_point for t in tensors]
        try:
            symbols = {id(t): program.input(t, w) for t, w in zip(tensors, wants)}
            symbolic = with_leaves((tuple(args), dict(kwargs)), lambda t: symbols[id(t)])
            options = {'p_' if k == 'p' else k: v for k, v in symbolic[1].items()}
            outputs = call(program, *symbolic[0], **options)
            outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            head = program.head(outputs)
        except table.Skip as reason:
            return self.skip(name, str(reason))
        except Exception as error:
            return self.difference(name, 'table', f'{type(error).__name__}: {error}')
        self.rounded_often = len(program.steps) > 1
        torch.manual_seed(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')
                want = flat(f(*args, **kwargs))[:program.compared]
        except Exception as error:  # a sample that PyTorch itself refuses
            return self.skip(name, f'PyTorch: {type(error).__name__}')
        if not want:
            return self.skip(name, 'PyTorch gives no tensor')
        if len(want) != len(outputs):
            return self.difference(name, 'result', f'{len(outputs)} results for {len(want)}')
        torch.manual_seed(seed)
        variable = [grad and w.requires_grad and any(wants) for w in want]
        dys = [torch.randn(w.shape, dtype=torch.float64).to(w.dtype) if v else None for w, v in zip(want, variable)]
        inputs = [t for t, w in zip(tensors, wants) if w]
        backward = any(variable)
        head['dys'] = [None if d is None else {'dtype': NAMES.get(d.dtype, 'float32'), 'shape': list(d.shape)} for d in dys]
        head['seed'] = seed
        reply = self.server.ask(text_of(head), program.tensors() + [d for d in dys if d is not None])
        self.n.samples += 1
        if 'error' in reply:
            for pattern, reason in REFUSED:
                if re.search(pattern, reply['error']) and 'CRASH' not in reply['error']:
                    self.n.refused[reason] += 1
                    return None
            return self.difference(name, 'refused', reply['error'])
        self.n.ops.add(name.split(' ')[0])

        def in_float64(part):
            def again(t):
                return t.detach().double().requires_grad_(t.requires_grad) if t.dtype.is_floating_point else t
            copies = {id(t): again(t) for t in tensors}
            wide_args, wide_kwargs = with_leaves((tuple(args), dict(kwargs)), lambda t: copies[id(t)])
            torch.manual_seed(seed)
            results = flat(f(*wide_args, **wide_kwargs))[:program.compared]
            if part[0] == 'result':
                return results[part[1]].detach()
            wide = [copies[id(t)] for t, w in zip(tensors, wants) if w]
            chosen = [(r, d.double()) for r, d in zip(results, dys) if d is not None]
            g = torch.autograd.grad([r for r, _ in chosen], wide, [d for _, d in chosen], allow_unused=True)[part[1]]
            return torch.zeros_like(wide[part[1]]) if g is None else g

        for i, (got, expected) in enumerate(zip(reply['outputs'], want)):
            self.n.results += 1
            self.compare(name, 'result', got, expected.detach(), lambda i=i: in_float64(('result', i)))
        if not backward:
            return None
        chosen = [(w, d) for w, d in zip(want, dys) if d is not None]
        try:
            gradients = torch.autograd.grad([w for w, _ in chosen], inputs, [d for _, d in chosen], allow_unused=True)
        except RuntimeError as error:
            return self.skip(name, f'PyTorch, backward: {type(error).__name__}')
        given = program.gradients(reply['gradients'])
        numbers = [symbols[id(t)].number for t, w in zip(tensors, wants) if w]
        answers = [given[n[1]] if given and n is not None else None for n in numbers]
        for i, (got, expected, x) in enumerate(zip(answers, gradients, inputs)):
            zero = torch.zeros(x.shape, dtype=x.dtype)
            self.n.gradients += 1
            self.compare(name, 'gradient', zero if got is None else got, zero if expected is None else expected,
                         lambda i=i: in_float64(('gradient', i)))
        return None

    def skip(self, name, reason):
        self.n.skipped[reason] += 1


def no_grad_types(op, dtype):
    return not dtype.is_floating_point or not op.supports_autograd


def run_ops(runner, only):
    for op in op_db:
        name = op.name + ('.' + op.variant_test_name if op.variant_test_name else '')
        call = table.OPS.get(name)
        if call is None or not re.search(only, name):
            continue
        for dtype in DTYPES:
            if dtype not in op.dtypes:
                continue
            grad = not no_grad_types(op, dtype)
            samples = []
            for make in (op.sample_inputs, op.reference_inputs):
                if make is op.reference_inputs and (op.reference_inputs_func is None or dtype == torch.bool):
                    continue
                try:
                    torch.manual_seed(0)
                    samples += list(make('cpu', dtype, requires_grad=grad))
                except Exception as error:
                    runner.skip(name, f'no samples: {type(error).__name__}')
            for i, s in enumerate(samples):
                if sum(t.numel() for t in leaves((s.input, s.args, s.kwargs))) > 20000:
                    runner.skip(name, 'more than 20,000 elements')
                    continue
                runner.run(f'{name} {NAMES[dtype]} #{i}', op.op, call, (s.input, *s.args), s.kwargs, grad)


def run_modules(runner, only):
    for info in module_db:
        call = table.MODULES.get(info.name)
        if call is None or not re.search(only, info.name):
            continue
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(0)
            for training in (False, True):
                for i, m in enumerate(info.module_inputs_func(info, device='cpu', dtype=dtype, requires_grad=True,
                                                              training=training)):
                    made = m.constructor_input
                    module = info.module_cls(*made.args, **made.kwargs).to(dtype)
                    module.train(training)
                    parameters = dict(module.named_parameters())
                    given = m.forward_input

                    def forward(weights, args, kwargs, module=module):
                        return torch.func.functional_call(module, weights, args, kwargs)

                    def said(program, weights, args, kwargs, module=module, call=call):
                        return call(program, module, weights, *args, **kwargs)

                    runner.run(f'{info.name} {NAMES[dtype]} #{i}', forward, said,
                               (parameters, tuple(given.args), dict(given.kwargs)), {}, True)


def run_optimizers(runner, only):
    for info in optim_db:
        name = info.optim_cls.__name__
        defaults = table.OPTIMIZERS.get(name)
        if defaults is None or not re.search(only, 'optim.' + name):
            continue
        for dtype in (torch.float32, torch.float64):
            for i, sample in enumerate(info.optim_inputs_func(device='cpu', dtype=dtype)):
                options = {**defaults, **sample.kwargs}
                torch.manual_seed(3)
                start = torch.randn(3, 5, dtype=dtype)
                steps = [torch.randn(3, 5, dtype=dtype) for _ in range(6)]

                def train(start, steps, options=sample.kwargs, cls=info.optim_cls):
                    p = torch.nn.Parameter(start.clone())
                    o = cls([p], **options)
                    for g in steps:
                        p.grad = g.clone()
                        o.step()
                    return p.detach()

                runner.run(f'optim.{name} {NAMES[dtype]} #{i} {sample.desc}', train,
                           lambda program, start, steps, name=name, options=options:
                           table.optimizer(program, name, options, start, steps), (start, steps), {}, False)


EXTREMES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-45, -1e-45, 1e-39, 1.2e-38, 1e-20, 1e-4, -1e-4, 10.0, 88.5,
            -87.5, 89.0, -104.0, 710.0, -746.0, 1e5, 1e10, -1e10, 3e18, 1e20, -1e20, 1e38, 3.4e38, -3.4e38, math.inf,
            -math.inf, math.nan, 15.0, 20.5, -20.5, 3.14159265]


def run_edges(runner, only):
    """Each elementwise op of one number at each extreme value, of two at each pair; rows of them for the others. The sign
    of a zero counts."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        values = torch.tensor(EXTREMES, dtype=torch.float64).to(dtype)
        rows = torch.stack([values, values.roll(1), values.roll(5)], 1)
        mild = rows[rows.isfinite().all(1) & (rows.abs() < 100).all(1)]
        for name, (inputs, f, call) in table.EDGES.items():
            if not re.search(only, 'edge.' + name):
                continue
            if inputs == 1:
                args = [values]
            elif inputs == 2:
                args = list(t.flatten() for t in torch.meshgrid(values, values, indexing='ij'))
            else:
                args = [rows if name not in table.MILD else mild]
            args = [a.clone().requires_grad_() for a in args]
            runner.run(f'edge.{name} {NAMES[dtype]}', f, call, args, {}, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('server')
    parser.add_argument('--only', default='', help='regular expression of the ops\' names')
    parser.add_argument('--verbose', action='store_true')
    args = parser.parse_args()
    torch.set_num_threads(1)
    runner = Runner(Server(args.server), args.verbose)
    for part in (run_ops, run_modules, run_optimizers, run_edges):
        part(runner, args.only)
    n = runner.n
    print(f'ops {len(n.ops)}, samples {n.samples}, results {n.results}, gradients {n.gradients}, closer to float64 than '
          f'PyTorch {n.excused}, refused {sum(n.refused.values())}, not said in heed {sum(n.skipped.values())}, '
          f'known differences {sum(n.known.values())}, differences {len(n.differences)}')
    for title, counter in (('refused', n.refused), ('not said', n.skipped), ('known', n.known)):
        for reason, count in counter.most_common():
            print(f'  {title}: {count} x {reason}')
    by_op = collections.defaultdict(list)
    for name, what, detail in n.differences:
        by_op[name.split(' ')[0]].append((name, what, detail))
    for op, found in sorted(by_op.items()):
        print(f'  DIFFERENCES of {op}: {len(found)}')
        for name, what, detail in found[:6]:
            print(f'    {name}, {what}: {detail}')
    return 1 if n.differences else 0


if __name__ == '__main__':
    sys.exit(main())
