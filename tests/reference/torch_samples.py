"""Runs PyTorch's own samples (torch.testing._internal in its wheel) and a grid of extreme values in heed, and compares.

    torch_samples.py BUILD/tests/tools/op_server [--only REGEX] [--verbose]

torch_samples_ops.py maps PyTorch's ops to heed's. Forward and backward are compared in float32, float64, bfloat16,
int32 and bool. A result passes if it agrees with PyTorch's, or is at least as close to PyTorch's float64 result. Zeros
in results must have PyTorch's sign, zeros in gradients need not. heed must refuse PyTorch's error inputs with an Error.
torch_samples_reasons.py lists the samples that are left out, refused, expected to differ, or of any sign, with reasons.
A reason that a complete run does not use is an error. An op, module or optimizer of PyTorch that the table does not map
needs a reason, too; --unmapped prints only those. A run takes five minutes of a core.
Exit codes: 0 all passed, 1 something failed, 2 bad usage, 77 skipped: no PyTorch 2.13 here.
"""
import argparse
import collections
import dataclasses
import json
import math
import re
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable

SKIPPED = 77

try:
    import numpy as np
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import ModuleErrorEnum, module_db
    from torch.testing._internal.common_optimizers import optim_db
except ImportError as error:
    print(f'skipped: {sys.executable} lacks a package: {error}; HEED_TORCH_PYTHON names a Python with torch 2.13, '
          'numpy, expecttest and pytest')
    sys.exit(SKIPPED)
if not torch.__version__.startswith('2.13.'):
    print(f'skipped: {sys.executable} has PyTorch {torch.__version__}; HEED_TORCH_PYTHON names a Python with 2.13')
    sys.exit(SKIPPED)

import torch_samples_ops as table  # noqa: E402  (needs PyTorch)
import torch_samples_reasons as reasons  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool]
NAMES = {torch.float32: 'float32', torch.float64: 'float64', torch.bfloat16: 'bfloat16', torch.int32: 'int32',
         torch.bool: 'bool8'}
TYPES = {name: dtype for dtype, name in NAMES.items()}
CLOSE = {torch.float32: 3e-5, torch.float64: 1e-10, torch.bfloat16: 2e-2}

class Server:
    """The op_server process, and the framing of its messages."""

    def __init__(self, path):
        self.path = path
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def request(self, head, tensors):
        text = json.dumps(head).encode()
        self.process.stdin.write(struct.pack('<Q', len(text)) + text + b''.join(map(raw, tensors)))
        self.process.stdin.flush()
        size = self.process.stdout.read(8)
        if len(size) < 8:
            code = self.process.wait()
            self.start()
            return {'error': f'CRASH: op_server ended with {code}', 'heed': False}
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
    """Replaces numbers that JSON cannot represent by text."""
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


def distinct(*values):
    """The tensors in samples, each once."""
    return list({id(t): t for t in leaves(values)}.values())


def with_leaves(value, f):
    if isinstance(value, torch.Tensor):
        return f(value)
    if isinstance(value, tuple) and hasattr(value, '_fields'):
        return type(value)(*(with_leaves(v, f) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(with_leaves(v, f) for v in value)
    return {k: with_leaves(v, f) for k, v in value.items()} if isinstance(value, dict) else value


def distances(a, b, scale):
    """|a - b| relative to max(|b|, scale), per element; 0 if both are NaN or equal, inf if only one is finite."""
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    d = ((a - b).abs() / b.abs().clamp(min=scale)).nan_to_num(nan=math.inf, posinf=math.inf)
    return torch.where(same, torch.zeros_like(d), d)


@dataclasses.dataclass
class Case:
    """A result or gradient to compare."""
    name: str
    what: str
    got: torch.Tensor
    expected: torch.Tensor
    x: torch.Tensor  # the input of a gradient; for results, the first input
    inputs: list
    dys: list
    exact: Callable  # computes the same in float64
    magnitude: Callable  # for a rule in CANCELLING, the magnitudes of the terms


class Counts:
    def __init__(self):
        self.ops, self.samples, self.results, self.gradients, self.errors = set(), 0, 0, 0, 0
        self.differences, self.closer = [], 0
        self.instead = collections.Counter()


class Runner:
    def __init__(self, server, verbose):
        self.server, self.verbose, self.n = server, verbose, Counts()

    def difference(self, name, what, detail):
        self.n.differences.append((name, what, detail))
        if self.verbose:
            print('DIFFERENCE', name, what, detail, flush=True)

    def left_out(self, name, reason):
        if reasons.LEFT_OUT.find(reason) is None:
            self.difference(name, 'left out', f'{reason}: no reason of LEFT_OUT')

    def compare(self, c):
        if tuple(c.got.shape) != tuple(c.expected.shape):
            return self.difference(c.name, c.what, f'shape {tuple(c.got.shape)} for {tuple(c.expected.shape)}')
        if c.got.numel() == 0:
            return None
        wrong, truth = self.wrong(c)
        if not bool(wrong.any()):
            return None
        rule = reasons.KNOWN.find(f'{c.name} {c.what}')
        if rule is not None:
            wrong = wrong & ~rule[1](c)
            if not bool(wrong.any()):
                return None
        i = int(wrong.flatten().int().argmax())
        self.difference(c.name, c.what, f'{tuple(c.expected.shape)}[{i}]: heed {c.got.flatten()[i].item()!r}, PyTorch '
                                        f'{c.expected.flatten()[i].item()!r}' +
                        (f', float64 {truth.flatten()[i].item()!r}' if truth is not None else ''))
        return None

    def wrong(self, c):
        """Returns which elements are wrong, and their float64 values (None if these were not computed)."""
        got, expected = c.got, c.expected
        if not expected.dtype.is_floating_point or not got.dtype.is_floating_point:
            return got.double() != expected.double(), None
        tolerance = max(CLOSE[got.dtype], CLOSE.get(expected.dtype, 0))
        if self.rounded_often and torch.bfloat16 in (got.dtype, expected.dtype):
            tolerance *= 4  # several ops of heed: bfloat16 is rounded after each
        finite = expected.double()[expected.double().isfinite()].abs()
        min_scale = 1e-40 if c.name.startswith('edge.') else 1e-2
        scale = min(1.0, max(min_scale, float(finite.max()))) if finite.numel() and finite.max() > 0 else 1.0
        d = distances(got, expected, scale)
        signs = (got == 0) & (expected == 0) & (got.signbit() != expected.signbit()) & (c.what == 'result')
        if bool(signs.any()) and reasons.UNSIGNED.find(c.name):
            signs = torch.zeros_like(signs)
        if float(d.max()) <= tolerance:
            return signs, None
        try:
            truth = c.exact()
        except Exception:  # not possible in float64
            return signs | (d > tolerance), None
        if truth.shape != expected.shape:
            return signs | (d > tolerance), None
        mine, theirs = distances(got, truth, scale), distances(expected, truth, scale)
        # Values that float64 can represent but the dtype cannot count as infinity.
        limit = torch.finfo(got.dtype).max
        over = truth.double().abs() > limit * (1 - 1e-3)
        ok = (d <= tolerance) | (mine <= theirs * 1.01 + tolerance) | (over & (got.double().abs() > limit * 0.99))
        rule = None if bool(ok.all()) else reasons.CANCELLING.find(f'{c.name} {c.what}')
        if rule is not None:
            rounding = 4 * torch.finfo(got.dtype).eps
            ok |= (got.double() - truth.double()).abs() <= rounding * c.magnitude(rule[1])
        self.n.closer += bool((ok & (d > tolerance)).any())
        return signs | ~ok, truth

    def expressed(self, name, call, args, kwargs, wants):
        """The program of a sample: (program, head, symbols by ids of tensors), or None if the sample is left out."""
        tensors = distinct(args, kwargs)
        if any(t.dtype.is_complex or t.layout != torch.strided or t.device.type != 'cpu' for t in tensors):
            return self.left_out(name, 'complex, sparse or elsewhere')
        program = table.Program()
        try:
            symbols = {id(t): program.input(t, w) for t, w in zip(tensors, wants)}
            symbolic = with_leaves((tuple(args), dict(kwargs)), lambda t: symbols[id(t)])
            options = {'p_' if k == 'p' else k: v for k, v in symbolic[1].items()}
            outputs = call(program, *symbolic[0], **options)
            outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            return program, program.head(outputs), symbols
        except table.Skip as reason:
            return self.left_out(name, str(reason))

    def refused(self, name, reply):
        """Whether heed's reply is an Error that is expected."""
        where = ' '.join(name.split(' ')[:2])  # op and dtype
        if not reply['heed']:
            return False
        if re.search(reasons.DTYPE_MESSAGE, reply['error']) and reasons.TAKES_NO.find(where + ' '):
            return True
        return reasons.REFUSED.find(f"{where}: {reply['error']}") is not None

    def run(self, name, f, call, args, kwargs, grad=True, seed=1):
        """Compares f(*args, **kwargs) in PyTorch with call(program, *symbols, **symbols) in heed."""
        # New leaves, because some samples are views through which PyTorch passes no gradient.
        own = {id(t): t.detach().requires_grad_(t.requires_grad) for t in distinct(args, kwargs)}
        args, kwargs = with_leaves((tuple(args), dict(kwargs)), lambda t: own[id(t)])
        tensors = list(own.values())
        if not tensors:
            return self.left_out(name, 'no tensor')
        wants = [grad and t.requires_grad and t.dtype.is_floating_point for t in tensors]
        try:
            expressed = self.expressed(name, call, args, kwargs, wants)
        except Exception as error:
            return self.difference(name, 'table', f'{type(error).__name__}: {error}')
        if expressed is None:
            return None
        program, head, symbols = expressed
        self.rounded_often = len(program.steps) > 1
        torch.manual_seed(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')
                results = flat(f(*args, **kwargs))[:program.compared]
        except Exception as error:
            return self.difference(name, 'PyTorch', f'{type(error).__name__}: {error}')
        if not results:
            return self.left_out(name, 'PyTorch gives no tensor')
        if len(results) != len(head['outputs']):
            return self.difference(name, 'result', f"{len(head['outputs'])} results for {len(results)}")
        torch.manual_seed(seed)
        variable = [grad and w.requires_grad and any(wants) for w in results]
        dys = [torch.randn(w.shape, dtype=torch.float64).to(w.dtype) if v else None for w, v in zip(results, variable)]
        head['dys'] = [None if d is None else {'dtype': NAMES.get(d.dtype, 'float32'), 'shape': list(d.shape)} for d in dys]
        head['seed'] = seed
        reply = self.server.request(text_of(head), program.tensors() + [d for d in dys if d is not None])
        self.n.samples += 1
        if 'error' in reply:
            if not self.refused(name, reply):
                self.difference(name, 'refused', reply['error'])
            return None
        self.n.ops.add(name.split(' ')[0])

        def wide(t):
            return t.detach().double().requires_grad_(t.requires_grad) if t.dtype.is_floating_point else t

        def in_float64(part, i):
            copies = {id(t): wide(t) for t in tensors}
            wide_args, wide_kwargs = with_leaves((tuple(args), dict(kwargs)), lambda t: copies[id(t)])
            torch.manual_seed(seed)
            results = flat(f(*wide_args, **wide_kwargs))[:program.compared]
            if part == 'result':
                return results[i].detach()
            inputs = [copies[id(t)] for t, w in zip(tensors, wants) if w]
            chosen = [(r, d.double()) for r, d in zip(results, dys) if d is not None]
            g = torch.autograd.grad([r for r, _ in chosen], inputs, [d for _, d in chosen], allow_unused=True)[i]
            return torch.zeros_like(inputs[i]) if g is None else g

        def magnitude(of):
            values, options = with_leaves((tuple(args), dict(kwargs)), lambda t: wide(t).detach())
            return of(values[0], [None if d is None else d.double() for d in dys], *values[1:], **options)

        def check(part, i, got, expected, x):
            self.compare(Case(name, part, got, expected, x.detach(), [t.detach() for t in tensors], dys,
                              lambda: in_float64(part, i), magnitude))

        for i, (got, expected) in enumerate(zip(reply['outputs'], results)):
            self.n.results += 1
            check('result', i, got, expected.detach(), tensors[0])
        if not any(variable):
            return None
        inputs = [t for t, w in zip(tensors, wants) if w]
        chosen = [(w, d) for w, d in zip(results, dys) if d is not None]
        try:
            gradients = torch.autograd.grad([w for w, _ in chosen], inputs, [d for _, d in chosen], allow_unused=True)
        except RuntimeError:
            return self.left_out(name, 'PyTorch refuses its gradient')
        given = program.gradients(reply['gradients'])
        numbers = [symbols[id(t)].number for t in inputs]
        answers = [given[n[1]] if given and n is not None else None for n in numbers]
        for i, (got, expected, x) in enumerate(zip(answers, gradients, inputs)):
            zero = torch.zeros(x.shape, dtype=x.dtype)
            self.n.gradients += 1
            check('gradient', i, zero if got is None else got, zero if expected is None else expected, x)
        return None

    def run_error(self, name, call, args, kwargs, message):
        """Checks that heed gives an Error for an input that PyTorch refuses with `message`."""
        if 'out' in kwargs:
            return self.left_out(name, 'option out')
        try:
            expressed = self.expressed(name, call, args, kwargs, [False] * len(distinct(args, kwargs)))
        except Exception as error:
            return self.difference(name, 'table', f'{type(error).__name__}: {error}')
        if expressed is None:
            return None
        program, head, _ = expressed
        head['dys'], head['seed'] = [None] * len(head['outputs']), 1
        reply = self.server.request(text_of(head), program.tensors())
        if reply.get('heed'):
            self.n.errors += 1
        elif 'error' in reply:
            self.difference(name, 'error input', f"no Error of heed's: {reply['error']}")
        elif reasons.NO_ERROR.find(f'{name}: {message}') is None:
            self.difference(name, 'error input', f'heed takes what PyTorch refuses: {message}')
        return None


def run_ops(runner, only):
    for op in op_db:
        name = op.name + ('.' + op.variant_test_name if op.variant_test_name else '')
        call = table.OPS.get(name)
        if call is None or not re.search(only, name):
            continue
        for dtype in DTYPES:
            if dtype not in op.dtypes:
                continue
            grad = dtype.is_floating_point and op.supports_autograd
            samples = []
            for make in (op.sample_inputs, op.reference_inputs):
                if make is op.reference_inputs and (op.reference_inputs_func is None or dtype == torch.bool):
                    continue
                torch.manual_seed(0)
                try:
                    samples += list(make('cpu', dtype, requires_grad=grad))
                except ValueError:  # it mixes dtypes, and some have no gradients
                    samples += list(make('cpu', dtype, requires_grad=False))
            f, reason = reasons.INSTEAD.get(name, (op.op, None))
            runner.n.instead[reason] += len(samples)
            for i, s in enumerate(samples):
                runner.run(f'{name} {NAMES[dtype]} #{i}', f, call, (s.input, *s.args), s.kwargs, grad)
        if op.error_inputs_func is not None:
            for i, e in enumerate(op.error_inputs('cpu')):
                s = e.sample_input
                if name in table.TAKEN_APART:
                    runner.left_out(name, 'an error input of an op that the table takes apart')
                elif not distinct(s.input, s.args) and not isinstance(s.input, (list, tuple)):
                    runner.left_out(name, 'no tensor')
                else:
                    runner.run_error(f'{name} error #{i}', call, (s.input, *s.args), s.kwargs, e.error_regex)


def run_modules(runner, only):
    for info in module_db:
        call = table.MODULES.get(info.name)
        if call is None or not re.search(only, info.name):
            continue
        for dtype in (torch.float32, torch.float64):
            for training in (False, True):
                name = f"{info.name} {NAMES[dtype]} {'training' if training else 'evaluation'}"
                options = {'device': 'cpu', 'dtype': dtype, 'requires_grad': True, 'training': training}
                torch.manual_seed(0)
                for i, sample in enumerate(info.module_inputs_func(info, **options)):
                    runner.run(f'{name} #{i}', *module_sample(info, call, dtype, training, sample), {}, True)
                if info.module_error_inputs_func is None:
                    continue
                for i, e in enumerate(info.module_error_inputs_func(info, **options)):
                    made = e.module_error_input.constructor_input
                    if e.error_on == ModuleErrorEnum.CONSTRUCTION_ERROR:
                        runner.run_error(f'{name} error #{i}', table.constructed(info.name, made.kwargs), (), {},
                                         e.error_regex)
                        continue
                    _, expressed, values = module_sample(info, call, dtype, training, e.module_error_input)
                    runner.run_error(f'{name} error #{i}', expressed, values, {}, e.error_regex)


def module_sample(info, call, dtype, training, sample):
    """PyTorch's function of parameters and inputs, the function in heed, and the parameters and inputs."""
    made, given = sample.constructor_input, sample.forward_input
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)

    def forward(weights, args, kwargs):
        return torch.func.functional_call(module, weights, args, kwargs)

    def expressed(program, weights, args, kwargs):
        return call(program, module, weights, *args, **kwargs)

    return forward, expressed, (dict(module.named_parameters()), tuple(given.args), dict(given.kwargs))


def run_optimizers(runner, only):
    for info in optim_db:
        name = info.optim_cls.__name__
        defaults = table.OPTIMIZERS.get(name)
        if defaults is None or not re.search(only, 'optim.' + name):
            continue
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(3)
            start = torch.randn(3, 5, dtype=dtype)
            steps = [torch.randn(3, 5, dtype=dtype) for _ in range(6)]

            def expressed(options, twice=''):
                return lambda program, start, steps: table.optimizer(program, name, {**defaults, **options}, start, steps,
                                                                     twice)

            for i, sample in enumerate(info.optim_inputs_func(device='cpu', dtype=dtype)):
                def train(start, steps, options=sample.kwargs):
                    p = torch.nn.Parameter(start.clone())
                    o = info.optim_cls([p], **options)
                    for g in steps:
                        p.grad = g.clone()
                        o.step()
                    return p.detach()

                runner.run(f'optim.{name} {NAMES[dtype]} #{i} {sample.desc}', train, expressed(sample.kwargs),
                           (start, steps), {},
                           False)
            for i, e in enumerate(info.optim_error_inputs_func(device='cpu', dtype=dtype)):
                runner.run_error(f'optim.{name} {NAMES[dtype]} error #{i}',
                                 table.optimizer_error(e.error_regex, expressed, e.optimizer_error_input.kwargs),
                                 (start, steps), {}, e.error_regex)


EXTREMES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-45, -1e-45, 1e-39, 1.2e-38, 1e-20, 1e-4, -1e-4, 10.0, 88.5,
            -87.5, 89.0, -104.0, 710.0, -746.0, 1e5, 1e10, -1e10, 3e18, 1e20, -1e20, 1e38, 3.4e38, -3.4e38, math.inf,
            -math.inf, math.nan, 15.0, 20.5, -20.5, 3.14159265]


def run_edges(runner, only):
    """Runs each elementwise op of one input at each extreme value, of two inputs at each pair; other ops on rows."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        values = torch.tensor(EXTREMES, dtype=torch.float64).to(dtype)
        pairs = [t.flatten() for t in torch.meshgrid(values, values, indexing='ij')]
        rows = torch.stack([values, values.roll(1), values.roll(5)], 1)
        for name, (inputs, f, call) in table.EDGES.items():
            if not re.search(only, 'edge.' + name):
                continue
            args = [a.clone().requires_grad_() for a in ([values] if inputs == 1 else pairs if inputs == 2 else [rows])]
            runner.run(f"edge.{name.replace(' ', '_')} {NAMES[dtype]}", f, call, args, {}, True)


def not_mapped():
    """The names that the table does not map by reason (None: no reason), and the tables with all names."""
    tables = [(table.OPS, [op.name + ('.' + op.variant_test_name if op.variant_test_name else '') for op in op_db]),
              (table.MODULES, [info.name for info in module_db]),
              ({'optim.' + name: 0 for name in table.OPTIMIZERS}, ['optim.' + info.optim_cls.__name__ for info in optim_db])]
    found = collections.defaultdict(list)
    for mapped, names in tables:
        for name in names:
            if name not in mapped:
                rule = reasons.NOT_MAPPED.find(name)
                found[rule[1] if rule else None].append(name)
    return found, tables


def report_not_mapped():
    """Prints the unmapped names. Returns whether each has a reason."""
    found, tables = not_mapped()
    for what, (mapped, names) in zip(('ops', 'modules', 'optimizers'), tables):
        print(f'{sum(name in mapped for name in names)} of {len(names)} {what} are mapped')
    for reason, names in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f'  not mapped: {len(names)} x {reason or "NO REASON"}: {" ".join(names)}')
    return None not in found


def report(n, whole):
    """Prints the counts. Returns whether all passed. In a complete run, unused reasons are failures."""
    print(f'ops {len(n.ops)}, samples {n.samples}, results {n.results}, gradients {n.gradients}, errors {n.errors}, closer '
          f'to float64 than PyTorch {n.closer}, differences {len(n.differences)}')
    for title, rules in (('left out', reasons.LEFT_OUT), ('of a dtype that heed\'s op does not take', reasons.TAKES_NO),
                         ('refused by heed', reasons.REFUSED), ('refused by PyTorch alone', reasons.NO_ERROR),
                         ('different, as is meant', reasons.KNOWN)):
        for reason, count in rules.counts().most_common():
            print(f'  {title}: {count} x {reason}')
    for reason, count in n.instead.items():
        if reason is not None:
            print(f'  compared with another function: {count} x {reason}')
    by_op = collections.defaultdict(list)
    for name, what, detail in n.differences:
        by_op[name.split(' ')[0]].append(f'    {name}, {what}: {detail}')
    for op, found in sorted(by_op.items()):
        print('\n'.join([f'  DIFFERENCES of {op}: {len(found)}'] + found[:6]))
    unneeded = [rule for rules in reasons.ALL for rule in rules.unneeded()] if whole else []
    for rule in unneeded:
        print(f'  NEVER NEEDED: {rule}')
    return not n.differences and not unneeded


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('server', nargs='?')
    parser.add_argument('--unmapped', action='store_true', help='only prints what the table does not map; needs no server')
    parser.add_argument('--only', default='', help='regular expression of the ops\' names')
    parser.add_argument('--verbose', action='store_true', help='shows each difference at once')
    args = parser.parse_args()
    if args.unmapped:
        return 0 if report_not_mapped() else 1
    if args.server is None:
        parser.error('give the path of op_server')
    torch.set_num_threads(1)
    runner = Runner(Server(args.server), args.verbose)
    for part in (run_ops, run_modules, run_optimizers, run_edges):
        part(runner, args.only)
    reasoned = args.only or report_not_mapped()
    return 0 if report(runner.n, not args.only) and reasoned else 1


if __name__ == '__main__':
    sys.exit(main())
