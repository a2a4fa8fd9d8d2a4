"""Writes optim_torch.json for tests/optim: trajectories of PyTorch's optimizers, schedules and gradient clipping.

usage: /usr/bin/python3 optim_torch.py        (made with PyTorch 2.13, which has no Lion; Lion is in plain Python here)

There are two parameters, "w" [2, 5] and "b" [3]. The gradient at step t is a (x - target) + noise[t] with stored noise,
computed in the dtype of the parameters, so that an error in one step affects all later steps.
"""
import json, math, pathlib, torch

STEPS, KEPT = 24, [1, 2, 3, 5, 8, 12, 16, 20, 24]
generator = torch.Generator().manual_seed(7)
SHAPES = [(2, 5), (3,)]


def numbers(scale):
    """float32 values, so that both dtypes start with the same numbers; some are tiny or large."""
    out = [(torch.randn(s, generator=generator) * scale).tolist() for s in SHAPES]
    return out


START, TARGET = numbers(1.0), numbers(1.0)
NOISE = [numbers(0.3 * (1 + 2 * (t % 5 == 0))) for t in range(STEPS)]
CURVATURE = 0.75

SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
RMS, ADAGRAD = torch.optim.RMSprop, torch.optim.Adagrad
CASES = {
    "sgd": (SGD, dict(lr=0.05)),
    "sgd momentum": (SGD, dict(lr=0.05, momentum=0.9)),
    "sgd dampening": (SGD, dict(lr=0.05, momentum=0.9, dampening=0.4, weight_decay=0.02)),
    "sgd nesterov": (SGD, dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1)),
    "adam": (ADAM, dict(lr=0.01)),
    "adam decay": (ADAM, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)),
    "adam amsgrad": (ADAM, dict(lr=0.01, betas=(0.9, 0.8), amsgrad=True)),
    "adamw": (ADAMW, dict(lr=0.01)),
    "adamw decay": (ADAMW, dict(lr=0.02, betas=(0.9, 0.99), eps=1e-5, weight_decay=0.3)),
    "adamw amsgrad": (ADAMW, dict(lr=0.01, betas=(0.9, 0.8), weight_decay=0.1, amsgrad=True)),
    "rmsprop": (RMS, dict(lr=0.01)),
    "rmsprop momentum": (RMS, dict(lr=0.01, alpha=0.9, momentum=0.8, weight_decay=0.05)),
    "rmsprop centered": (RMS, dict(lr=0.01, alpha=0.9, eps=1e-3, centered=True)),
    "rmsprop all": (RMS, dict(lr=0.01, alpha=0.9, eps=1e-4, momentum=0.7, centered=True, weight_decay=0.05)),
    "adagrad": (ADAGRAD, dict(lr=0.1)),
    "adagrad decay": (ADAGRAD, dict(lr=0.1, lr_decay=0.05, weight_decay=0.1, initial_accumulator_value=0.2, eps=1e-4)),
}
LION_CASES = {"lion": dict(lr=0.01, betas=(0.9, 0.99), weight_decay=0.0),
              "lion decay": dict(lr=0.02, betas=(0.8, 0.95), weight_decay=0.3)}


def flat(tensors):
    return [v for t in tensors for v in t.detach().flatten().tolist()]


def trajectory(make, options, dtype, clip=None, lrs=None, groups=None):
    params = [torch.tensor(x, dtype=dtype, requires_grad=True) for x in START]
    target = [torch.tensor(x, dtype=dtype) for x in TARGET]
    optimizer = make([dict(params=[p], **g) for p, g in zip(params, groups)] if groups else params, **options)
    kept, norms = [], []
    for t in range(STEPS):
        for p, goal, noise in zip(params, target, NOISE[t]):
            p.grad = CURVATURE * (p.detach() - goal) + torch.tensor(noise, dtype=dtype)
        if clip:
            norms.append(float(torch.nn.utils.clip_grad_norm_(params, clip)))
        if lrs:
            for g in optimizer.param_groups:
                g["lr"] = lrs[t]
        optimizer.step()
        if t + 1 in KEPT:
            kept.append(flat(params))
    return (kept, norms) if clip else kept


def lion(lr, betas, weight_decay):
    """Chen et al. 2023, program 1, in plain float64."""
    x, m, kept = flat(map(torch.tensor, START)), [0.0] * 13, []
    x = [float(v) for v in flat([torch.tensor(s, dtype=torch.float64) for s in START])]
    goal = flat([torch.tensor(s, dtype=torch.float64) for s in TARGET])
    for t in range(STEPS):
        noise = flat([torch.tensor(s, dtype=torch.float64) for s in NOISE[t]])
        for i in range(len(x)):
            g = CURVATURE * (x[i] - goal[i]) + noise[i]
            c = betas[0] * m[i] + (1 - betas[0]) * g
            x[i] = x[i] * (1 - lr * weight_decay) - lr * ((c > 0) - (c < 0))
            m[i] = betas[1] * m[i] + (1 - betas[1]) * g
        if t + 1 in KEPT:
            kept.append(list(x))
    return kept


def rates(make, steps, lr=1.0):
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler, out = make(optimizer), []
    for _ in range(steps):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return out


def plateau(losses, eps=0, **options):
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, out = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, eps=eps, **options), []
    for loss in losses:
        scheduler.step(loss)
        out.append(optimizer.param_groups[0]["lr"])
    return out


def nano(lr, warmup, steps):
    """The usual recipe: linear warm-up, then a cosine decay to a tenth."""
    out = []
    for step in range(steps):
        cosine = 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
        out.append(lr * step / warmup if step < warmup else lr * (0.1 + 0.9 * cosine))
    return out


f32, f64 = torch.float32, torch.float64


def adafactor_data():
    """Adafactor's trajectories for parameters with one, two and three axes, with a separate generator."""
    own = torch.Generator().manual_seed(11)
    shapes = [(2, 5), (3,), (2, 3, 4)]
    draw = lambda scale: [(torch.randn(s, generator=own) * scale).flatten().tolist() for s in shapes]
    start, target, noise = draw(1.0), draw(1.0), [draw(0.3) for _ in range(STEPS)]
    cases = {"defaults": dict(), "decay": dict(lr=0.05, weight_decay=0.2),
             "all": dict(lr=0.5, beta2_decay=-0.5, eps=(1e-3, 0.1), d=1.5, weight_decay=0.02, maximize=True)}

    def steps(options, dtype):
        as_tensors = lambda lists: [torch.tensor(x, dtype=dtype).reshape(s) for x, s in zip(lists, shapes)]
        params, goals, kept = [p.requires_grad_() for p in as_tensors(start)], as_tensors(target), []
        optimizer = torch.optim.Adafactor(params, **options)
        curvature = -CURVATURE if options.get("maximize") else CURVATURE
        for t in range(STEPS):
            for p, goal, n in zip(params, goals, as_tensors(noise[t])):
                p.grad = curvature * (p.detach() - goal) + n
            optimizer.step()
            if t + 1 in KEPT:
                kept.append(flat(params))
        return kept

    return dict(shapes=shapes, start=start, target=target, noise=noise,
                cases={name: dict(float32=steps(o, f32), float64=steps(o, f64)) for name, o in cases.items()})


def muon_data():
    """Muon's trajectories for a square, a wide and a tall matrix, with PyTorch's rounding of the iteration to bfloat16,
    and in float64 without the rounding."""
    own = torch.Generator().manual_seed(13)
    shapes = [(5, 5), (4, 10), (9, 3)]
    draw = lambda scale: [(torch.randn(s, generator=own) * scale).flatten().tolist() for s in shapes]
    start, target, noise = draw(1.0), draw(1.0), [draw(0.3) for _ in range(STEPS)]
    cases = {"defaults": dict(), "usual": dict(lr=0.02, weight_decay=0.0),
             "heavy ball": dict(lr=0.02, momentum=0.8, nesterov=False, weight_decay=0.3),
             "match_rms_adamw": dict(lr=0.02, adjust_lr_fn="match_rms_adamw"),
             "coefficients": dict(lr=0.05, ns_coefficients=(2.0, -1.5, 0.5), ns_steps=3, eps=4.0)}

    def steps(options, dtype):
        as_tensors = lambda lists: [torch.tensor(x, dtype=dtype).reshape(s) for x, s in zip(lists, shapes)]
        params, goals, kept = [p.requires_grad_() for p in as_tensors(start)], as_tensors(target), []
        optimizer = torch.optim.Muon(params, **options)
        for t in range(STEPS):
            for p, goal, n in zip(params, goals, as_tensors(noise[t])):
                p.grad = CURVATURE * (p.detach() - goal) + n
            optimizer.step()
            if t + 1 in KEPT:
                kept.append(flat(params))
        return kept

    def exact(options):
        rounds = torch.Tensor.bfloat16
        torch.Tensor.bfloat16 = torch.Tensor.clone
        try:
            return steps(options, f64)
        finally:
            torch.Tensor.bfloat16 = rounds

    return dict(shapes=shapes, start=start, target=target, noise=noise,
                cases={name: dict(bfloat16=steps(o, f32), float64=exact(o)) for name, o in cases.items()})


data = dict(steps=STEPS, kept=KEPT, curvature=CURVATURE, start=START, target=TARGET, noise=NOISE, cases={})
for name, (make, options) in CASES.items():
    data["cases"][name] = dict(float32=trajectory(make, options, f32), float64=trajectory(make, options, f64))
for name, options in LION_CASES.items():
    kept = lion(**options)
    data["cases"][name] = dict(float64=kept)
groups = [dict(weight_decay=0.1), dict(weight_decay=0.0)]
LRS = nano(0.02, 4, STEPS)
kept, norms = trajectory(ADAMW, dict(lr=0.02, betas=(0.9, 0.99)), f64, clip=1.0, lrs=LRS, groups=groups)
kept32, norms32 = trajectory(ADAMW, dict(lr=0.02, betas=(0.9, 0.99)), f32, clip=1.0, lrs=LRS, groups=groups)
data["clipped"] = dict(float32=kept32, float64=kept, norms=norms)

LOSSES = [3.0, 2.5, 2.4999, 2.6, 2.5, 2.49, 2.4, 2.4, 2.4, 2.41, 2.4, 2.39999, 2.5, 2.6, 2.4, 2.2, 2.3, 2.3, 2.3, 2.3, 2.3, 2.3, 2.3, 2.3]
NEGATIVE = [1.0, 0.5, -1.0, -0.95, -0.87, -0.8, -0.75, -0.6, -0.5, -2.0, -1.85, -1.7, -1.7, -1.3, -1.3, -1.3, -1.3, -1.3]
data["schedules"] = dict(
    one_cycle=rates(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=40), 40),
    one_cycle_options=rates(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=50, pct_start=0.2, div_factor=10,
                                                                          final_div_factor=100), 50),
    step=rates(lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=7, gamma=0.3), 40),
    nano=nano(1e-3, 100, 2000)[::20], losses=LOSSES,
    plateau=plateau(LOSSES, factor=0.5, patience=2),
    plateau_options=plateau(LOSSES, factor=0.1, patience=1, threshold=1e-2, cooldown=3, min_lr=1e-3),
    plateau_eps=plateau(LOSSES, factor=0.1, patience=0, eps=1e-2),
    negative_losses=NEGATIVE, plateau_negative=plateau(NEGATIVE, factor=0.5, patience=1, threshold=0.1))


def rounded(value, digits):
    return [rounded(v, digits) for v in value] if isinstance(value, list) else float(f"{value:.{digits}g}")


data["adafactor"] = adafactor_data()
data["muon"] = muon_data()
for case in [*data["cases"].values(), data["clipped"], *data["adafactor"]["cases"].values(), *data["muon"]["cases"].values()]:
    for kind in ("float32", "bfloat16"):
        if kind in case:
            case[kind] = rounded(case[kind], 9)  # 9 digits represent a float32 exactly
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(data, separators=(",", ":")).replace('],"', '],\n"').replace('},"', '},\n"') + "\n")
print(path.name, path.stat().st_size, "bytes")
