"""The runs of tests/jobs/run_hashes: tiny models, and the data that they read."""

# Flags for models that train in a second.
LM = "train_lm --data text --layers 2 --heads 4 --width 32 --context 32 --batch 4 --steps 16 --sample 0 "
PAIRS = ("translate --source words --target numbers --val-source words --val-target numbers --min-freq 1 --width 16 "
         "--hidden 24 --batch-tokens 64 --warmup 8 --steps 16 ")
LISTS = "classify --layers 1 --heads 2 --width 16 --batch 8 --length 12 --depth 2 --held-out 100 "
TO = " --checkpoint run.h5"


def lm(flags):
    return [LM + flags + TO]


def pairs(flags):
    return [PAIRS + flags + TO]


# The commands of each run. `ranks N` begins a command of N processes. The checkpoint run.h5 is hashed after the last
# command, or its output if it does not write run.h5.
RUNS = {
    # Models and mechanisms
    "lm-softmax": lm(""),
    "lm-mlm-linformer": lm("--model mlm --attention linformer --linformer-rows 8"),
    "lm-linear": lm("--attention linear --feature-map relu --positions none"),
    "lm-window-rope": lm("--attention window --window 8 --positions rope --tokenizer byte"),
    "lm-forgetting": lm("--attention forgetting --positions sinusoidal"),
    "lm-gated-delta-hybrid": lm("--attention gated-delta --global-every 2 --value-heads 2 --max-rate 2"),
    "lm-kda": lm("--attention kda --gate-rank 3 --short-convolution 2 --bias true"),
    "lm-luong-concat": lm("--attention luong-concat --additive-units 8"),
    "lm-lsh": lm("--attention lsh --lsh-rounds 2 --lsh-buckets 4 --window 8"),
    "lm-favor": lm("--attention favor --favor-features 16"),
    "lm-relative-swiglu": lm("--positions relative --activation swiglu --norm rms --bias true --qk-norm true"),
    "lm-gpt2": lm("--preset gpt2"),
    "lm-reversible": lm("--reversible true --dropout 0.1"),
    "lm-mlm-reformer": lm("--model mlm --attention reformer --lsh-chunk 8 --lsh-rounds 2"),
    "lm-mlm-luna": lm("--model mlm --attention luna --luna-memory 4"),
    # Optimizers and schedules
    "lm-sgd": lm("--optimizer sgd --schedule plateau --eval-every 4 --lr 0.1"),
    "lm-adam": lm("--optimizer adam --schedule inverse-sqrt"),
    "lm-rmsprop": lm("--optimizer rmsprop --schedule step"),
    "lm-adagrad": lm("--optimizer adagrad --schedule constant"),
    "lm-lion": lm("--optimizer lion --schedule one-cycle --grad-clip 0"),
    "lm-adafactor": lm("--optimizer adafactor --schedule linear"),
    "lm-muon": lm("--optimizer muon --weight-decay 0.05"),
    # Recipes, types, steps in shards
    "lm-fast": lm("--recipe fast --dtype f32"),
    "lm-fast-bf16": lm("--recipe fast --dtype bf16"),
    "lm-bf16": lm("--dtype bf16"),
    "lm-shards-dropout": lm("--accumulate 2 --shards 4 --dropout 0.1"),
    "lm-shards-bf16": lm("--shards 4 --communication-dtype bf16"),
    # Continued and fine-tuned runs, other data
    "lm-resume": [LM + "--dropout 0.1 --optimizer muon" + TO, f"train_lm --sample 0 --resume --steps 24{TO}"],
    "lm-init": [LM + "--optimizer adamw --checkpoint old.h5", LM + "--init old.h5 --optimizer sgd" + TO],
    "lm-token-file": ["tokenize --data text --train unigram --vocabulary 300 --out text.tokens",
                      LM.replace("--data text", "--data text.tokens") + TO],
    "lm-stories": [LM.replace("--data text", "--eval-batches 2").replace("--context 32", "--context 48") + TO],
    # Translation
    "translate-bahdanau": pairs(""),
    "translate-luong": pairs("--model gru-luong-general --input-feeding --layers 2"),
    "translate-lstm-local": pairs("--model lstm-local-p --directions 1"),
    "translate-transformer": pairs("--model transformer --label-smoothing 0.1 --schedule inverse-sqrt"),
    "translate-transformer-linear": pairs("--model transformer --norm-first --encoder-attention window --window 3 "
                                          "--decoder-attention linear --cross-attention cosine --dtype bf16"),
    "translate-conv": pairs("--model conv --layers 2"),
    "translate-bytenet": pairs("--model bytenet --layers 3"),
    "translate-average-pieces": [PAIRS.replace("--min-freq 1", "--vocabulary 290").replace("--steps 16", "--epochs 3") +
                                 "--average-last 3 --average-every 2 --shards 2 --eval-every 5 --best best.h5" + TO],
    "translate-resume": pairs("--schedule constant") + [f"translate --resume --steps 24{TO}"],
    # Lists
    "classify-softmax": [LISTS + "--steps 24" + TO],
    "classify-resume": [LISTS + "--attention efficient --steps 12" + TO, f"classify --resume --steps 24{TO}"],
    # Processes
    "ranks-lm": ["ranks 2 " + LM + "--shards 4 --dropout 0.1 --optimizer muon --threads 1" + TO],
    "ranks-lm-bf16": ["ranks 2 " + LM + "--shards 2 --communication-dtype bf16 --dtype bf16 --threads 1" + TO],
    "ranks-resume": [f"ranks 2 {LM}--shards 2 --threads 1{TO}", f"train_lm --sample 0 --resume --steps 24{TO}"],
    "ranks-translate": ["ranks 2 " + PAIRS + "--model transformer --shards 2 --threads 1" + TO],
    # Outputs
    "generate": [LM + "--checkpoint lm.h5", "generate --checkpoint lm.h5 --prompt one --prompt 'two and' --tokens 60"],
    "generate-bf16": [LM + "--attention window --checkpoint lm.h5",
                      "generate --checkpoint lm.h5 --dtype bf16 --prompt one --tokens 60 --top-k 5"],
    "translate-beam": [PAIRS + "--model transformer --lr 1e-2 --checkpoint t.h5",
                       "translate --checkpoint t.h5 --translate words --beam 3"],
}


def write_data(folder):
    """Writes a text, and pairs of sentences."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    sums, numbers, digits = [], [], []
    for i in range(600):
        a, b = i * 7 % 9, (i * i + i // 9) % 9
        sums.append(f"{words[a]} and {words[b]} are {a + b + 2}; {words[b]} times {words[a]} is {(a + 1) * (b + 1)}.\n")
        if i < 60:
            numbers.append(f"{words[a]} {words[b]} {words[(a + b) % 9]}\n")
            digits.append(f"{a + 1} {b + 1} {(a + b) % 9 + 1}\n")
    for name, lines in (("text", sums), ("words", numbers), ("numbers", digits)):
        (folder / name).write_text("".join(lines))
