"""What ./run bench makes of programs' output: samples, medians, ratios, the table; and when it measures again or not at all.

outputs/ holds what the programs printed once, by the program's name.
"""
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUTS = Path(__file__).resolve().parent / "outputs"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "benchmarks"))
from driver import machine, rows, table  # noqa: E402
from driver.samples import BenchError, Command, Line, Sample, in_turn, measure, parse  # noqa: E402


def all_rows(**options):
    return rows.rows(Path("build/benchmarks"), "python", Path("benchmarks/peers"), 2, Path("work"), text=Path("text"), **options)


def quiet_stat(worked, idle):
    """/proc/stat of two processors after so many ticks."""
    return f"cpu  {worked} 0 0 {idle} 0 0 0 0 0 0\ncpu0 0 0 0 0\ncpu1 0 0 0 0\nintr 1\n"


class Parsing(unittest.TestCase):
    def stored(self, command):
        programs = [Path(word).stem for word in command.argv if re.match("build/examples/|(build/)?benchmarks/", word)]
        return (OUTPUTS / programs[0]).read_text()

    def test_each_row_reads_what_its_programs_print(self):
        for row in all_rows():
            ours = parse(row.heed, self.stored(row.heed))
            self.assertTrue(all((s.value or s.loss) > 0 for s in ours), row.name)
            self.assertEqual(len({s.label for s in ours}), len(ours), row.name)
            if row.limit:
                self.assertTrue(all(s.rate or s.share for s in ours), row.name)
            for form, command in row.forms.items():
                theirs = parse(command, self.stored(command))
                self.assertTrue(all((s.value or s.loss) > 0 for s in theirs), row.name)
                self.assertLessEqual({s.label for s in theirs}, {s.label for s in ours}, row.name)

    def test_groups(self):
        command = Command(["x"], r"^(?P<label>T = \d+) (?P<form>\w+) (?P<value>[\d.]+) ms(?:, (?P<mib>\d+) MiB)?")
        samples = parse(command, "noise\nT = 256 flash 1.50 ms, 12 MiB\nT = 1024 plain 3 ms\n")
        self.assertEqual(samples, [Sample(1.5, "T = 256", "flash", mib=12), Sample(3, "T = 1024", "plain")])

    def test_an_output_without_the_line_is_told(self):
        with self.assertRaisesRegex(BenchError, "A=1 bench_x 3 printed no line that matches (?s:.*)oh no"):
            parse(Command(["bench_x", "3"], "^(?P<value>[0-9]+) ms", {"A": "1"}), "oh no\n")


class InTurn(unittest.TestCase):
    def run_rounds(self, values, rounds, forms=("eager", "compiled")):
        """values: name -> its successive values; also returns the order of the runs."""
        order, left = [], {name: list(v) for name, v in values.items()}

        def fake(command):
            order.append(command)
            return [Sample(left[command].pop(0))], 0.01 * len(order)
        lines, disturbed = in_turn("heed", {f: f for f in forms}, rounds, measure=fake)
        return lines[0], disturbed, order

    def test_ratio_is_the_median_of_neighbours(self):
        # The machine slows down: the ratio of the medians would be 30 / 30.
        line, disturbed, order = self.run_rounds({"heed": [10, 30, 40], "eager": [20, 30, 120]}, 3, ["eager"])
        self.assertEqual(order, ["heed", "eager"] * 3)
        self.assertEqual(line.ratio(), 2)
        self.assertEqual((line.of_heed(), line.of_peer()), (30, 30))
        self.assertAlmostEqual(disturbed, 0.06)

    def test_a_form_that_is_slower_is_left_out(self):
        line, _, order = self.run_rounds({"heed": [1, 1, 1], "eager": [2], "compiled": [1.5, 1.6, 1.4]}, 3)
        self.assertEqual(order, ["heed", "eager", "compiled", "heed", "compiled", "heed", "compiled"])
        self.assertEqual((line.form(), line.of_peer(), line.ratio()), ("compiled", 1.5, 1.5))
        self.assertEqual(line.peer["eager"], [Sample(2), None, None])

    def test_forms_that_are_near_are_all_measured(self):
        line, _, order = self.run_rounds({"heed": [1, 1, 1], "eager": [2, 1.8, 1.8], "compiled": [1.99, 2.1, 2.1]}, 3)
        self.assertEqual(len(order), 9)
        self.assertEqual((line.form(), line.of_peer()), ("eager", 1.8))

    def test_labels_have_forms_of_their_own(self):
        def fake(command):
            if command == "heed":
                return [Sample(1, "short"), Sample(10, "long")], 0
            return [Sample(2, "short", "flash"), Sample(1.5, "short", "written out"), Sample(20, "long", "flash")], 0
        lines, _ = in_turn("heed", {"": "torch"}, 2, measure=fake)
        self.assertEqual([(line.label, line.form(), line.ratio()) for line in lines],
                         [("short", "written out", 1.5), ("long", "flash", 2)])

    def test_no_round_begins_that_would_end_too_late(self):
        def rounds_of(seconds):
            now = iter([0.0] + [seconds * (i + 1) for i in range(9)])
            line, _ = in_turn("heed", {}, 3, measure=lambda c: ([Sample(1)], 0), clock=lambda: next(now))
            return len(line[0].heed)
        self.assertEqual([rounds_of(s) for s in (10, 40, 80)], [3, 2, 2])

    def test_a_form_of_fewer_rounds_is_not_the_fastest(self):
        line = Line("", [Sample(1)] * 2, {"eager": [Sample(2), None], "compiled": [Sample(2), Sample(3)]})
        self.assertEqual((line.form(), line.of_peer()), ("compiled", 2.5))

    def test_without_a_peer(self):
        line, _, _ = self.run_rounds({"heed": [3, 1, 2]}, 3, [])
        self.assertEqual((line.of_heed(), line.of_peer(), line.ratio(), line.form()), (2, None, None, None))


class Machine(unittest.TestCase):
    def watch(self, *texts):
        texts = list(texts)
        return machine.Watch(read=lambda: texts.pop(0))

    def test_share_of_others(self):
        hertz = os.sysconf("SC_CLK_TCK")
        # In one second two processors worked 1.5 s, of which 1 was our own: 0.5 of 2.
        watch = self.watch(quiet_stat(0, 0), quiet_stat(1.5 * hertz // 1, 0.5 * hertz // 1).replace(".0", ""))
        self.assertAlmostEqual(watch.others(own_seconds=1), 0.25)
        self.assertEqual(self.watch(quiet_stat(0, 0), quiet_stat(10, 90)).others(own_seconds=5), 0)

    def test_time_that_the_hypervisor_took_counts(self):
        steal = "cpu  0 0 0 50 0 0 0 50 0 0\ncpu0 0\n"
        self.assertAlmostEqual(self.watch(quiet_stat(0, 0), steal).others(), 0.5)

    def test_without_the_file_nothing_is_known(self):
        self.assertEqual(self.watch(None, None).others(), 0)

    def test_waits_for_an_idle_machine(self):
        loads, naps = [0.9, 0.5, 0.1, 0.7], []
        self.assertEqual(machine.wait_until_idle(5, lambda: loads.pop(0), naps.append), 0.1)
        self.assertEqual(len(naps), 2)
        loads = [0.9, 0.5, 0.4]
        self.assertEqual(machine.wait_until_idle(2, lambda: loads.pop(0), naps.append), 0.4)

    def test_a_disturbed_run_is_done_again(self):
        def run(shares, tries=3):
            shares = list(shares)

            class Watch:
                def others(self, own):
                    return shares.pop(0)
            outputs = iter(["1 ms", "2 ms", "3 ms", "4 ms"])
            samples, others = measure(Command(["x"], r"^(?P<value>\d+) ms"), tries, lambda c: (next(outputs), 1.0), Watch)
            return samples[0].value, others
        self.assertEqual(run([0.01]), (1, 0.01))
        self.assertEqual(run([0.3, 0.02]), (2, 0.02))
        self.assertEqual(run([0.3, 0.1, 0.2]), (2, 0.1))  # the least disturbed

    def test_a_program_that_measures_no_time_is_timed(self):
        samples, _ = measure(Command(["x"], r"loss (?P<loss>[\d.]+)"), execute=lambda c: ("loss 1.5", 7.0),
                             watch=lambda: self.watch(None, None))
        self.assertEqual(samples, [Sample(7.0, loss=1.5)])


class Table(unittest.TestCase):
    row = rows.Row("step", "a step", "ms", Command(["h"], ""), {"eager": Command(["p"], "")}, limit="float32")

    def line(self):
        return Line("T = 256", [Sample(2, rate=100, mib=47)], {"eager": [Sample(3, mib=86)], "compiled": [Sample(4)]})

    def test_a_line(self):
        words = table.markdown([(self.row, [self.line()], {"float32": 200.0}, table.Remarks())])
        self.assertEqual(words.splitlines()[2], "| a step T = 256 | 2.00 ms | 50% of float32 | PyTorch eager 3.00 ms | 1.50 | "
                                                "47 MiB against 86 |")

    def test_a_disturbed_row_says_so(self):
        self.assertIn("a step T = 256 (other programs used 12% of the processors)",
                      table.markdown([(self.row, [self.line()], {}, table.Remarks(0.12))]))

    def test_a_row_says_how_far_apart_the_cores_were(self):
        def remarks(*times):
            return table.Remarks(core_to_core=list(times))
        self.assertEqual([remarks(*times).cores_in_words() for times in ((152, 148), (152, 823), (823, 148, 152), (9, 9), (1234, 1190), ())],
                         ["150 ns", "150 to 820 ns", "150 to 820 ns", "9 ns", "1200 ns", ""])
        one_thread = (self.row, [Line("", [Sample(5)])], {}, table.Remarks())
        words = table.markdown([(self.row, [self.line()], {}, remarks(152, 823)), one_thread]).splitlines()
        self.assertEqual(words[0].split(" | ")[-1], "core to core and back |")
        self.assertEqual(words[2].split(" | ")[-1], "150 to 820 ns |")
        self.assertEqual(words[3], "| a step | 5.00 ms |  |  |  |  |  |")
        self.assertEqual({line.count("|") for line in words[:4]}, {8})
        self.assertRegex(words[5], "^Core to core and back: .* in these rows 152 to 823 ns")
        # One thread alone: neither the column nor the words.
        words = table.markdown([one_thread]).splitlines()
        self.assertEqual(({line.count("|") for line in words}, len(words)), ({7}, 3))

    def test_without_peer_and_limit(self):
        words = table.markdown([(self.row, [Line("", [Sample(1234.4, share=71)])], {}, table.Remarks())])
        self.assertEqual(words.splitlines()[2], "| a step | 1234 ms | 71% of float32 |  |  |  |")

    def test_losses(self):
        words = table.markdown([(self.row, [Line("", [Sample(20, loss=1.9)], {"": [Sample(40, loss=1.95)]})], {},
                                table.Remarks())])
        self.assertEqual(words.splitlines()[2], "| a step | 20.0 ms, loss 1.900 |  | PyTorch 40.0 ms, loss 1.950 | 2.00 |  |")

    def test_json_and_back(self):
        limits = {"float32": 200.0}
        for remarks in (table.Remarks(), table.Remarks(0.12, [152, 823])):
            stored = json.loads(json.dumps({**table.as_json(self.row, [self.line()], remarks), "limits": limits}))
            self.assertEqual(stored["lines"][0]["ratio"], 1.5)
            self.assertEqual(table.markdown([table.from_json(stored)]), table.markdown([(self.row, [self.line()], limits, remarks)]))
        del stored["core_to_core"]  # of a file that is older than that
        self.assertEqual(table.from_json(stored)[3], table.Remarks(0.12))


class Program(unittest.TestCase):
    """benchmarks/run_all on programs that print what is stored."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        (self.root / "benchmarks").mkdir()
        (self.root / "peers/bin").mkdir(parents=True)
        # The cores are found far from each other after the first look.
        self.program("benchmarks/bench_limits", f'if [ "$1" != --core-to-core ]; then cat {OUTPUTS}/bench_limits; else '
                     f"echo look >> {self.root}/looks; [ $(wc -l < {self.root}/looks) = 1 ] && ns=152 || ns=823; "
                     "echo limits, avx2, 2 threads: core to core and back $ns ns; fi")
        self.program("benchmarks/bench_train_step", "cat " + str(OUTPUTS / "bench_train_step"))

    def program(self, name, line):
        path = self.root / name
        path.write_text("#!/bin/sh\n" + line + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def peers(self):
        self.program("peers/bin/python", f'case "$*" in *importlib*) echo \'{{"torch": "2.13.0"}}\' ;; '
                     f"*--compile*) cat {OUTPUTS}/gpt_step_torch-compiled ;; *) cat {OUTPUTS}/gpt_step_torch ;; esac")

    def run_all(self, *arguments, anyway="1"):
        environment = {**os.environ, "HEED_BENCH_ANYWAY": anyway}
        return subprocess.run([ROOT / "benchmarks/run_all", "--build", self.root, "--peers", self.root / "peers", "--json",
                               self.root / "bench.json", *arguments], env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)

    def test_a_row_with_its_peer(self):
        self.peers()
        ran = self.run_all("--quick", "^step/nano/f32$")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(ran.stderr, "")
        self.assertIn("| a step of `nano`, float32", ran.stdout)
        self.assertRegex(ran.stdout, r"limits of this run: .*, 152 ns core to core and back")
        self.assertRegex(ran.stdout, r"\n *\d+ s  core to core and back: 150 to 820 ns\n")
        self.assertRegex(ran.stdout.splitlines()[-3], r"PyTorch .* \| 150 to 820 ns \|$")
        self.assertRegex(ran.stdout.splitlines()[-1], "^Core to core and back: .* in these rows 152 to 823 ns")
        row = json.loads((self.root / "bench.json").read_text())["rows"]["step/nano/f32"]
        self.assertEqual(row["versions"], {"torch": "2.13.0"})
        self.assertEqual(len(row["lines"][0]["samples"]), 1)
        self.assertEqual(row["core_to_core"], [152, 823])
        again = self.run_all("--stored", "nano")
        self.assertEqual(again.stdout.splitlines()[-3:], ran.stdout.splitlines()[-3:])

    def test_with_one_thread_cores_are_not_told(self):
        self.program("benchmarks/bench_limits", "echo limits, avx2, 1 threads: float32 100.0 GFLOP/s, bf16 100.0 GFLOP/s, "
                     "read 9.00 GB/s, copy 9.00 GB/s")
        ran = self.run_all("--quick", "^step/nano/f32$")
        self.assertEqual((ran.returncode, ran.stdout.count("core to core")), (0, 0), ran.stderr)
        self.assertEqual(json.loads((self.root / "bench.json").read_text())["rows"]["step/nano/f32"]["core_to_core"], [])

    def test_cores_are_looked_at_before_each_run_of_heed_and_after_the_row(self):
        self.peers()
        self.run_all("threads")
        looks = len((self.root / "looks").read_text().splitlines())
        row = json.loads((self.root / "bench.json").read_text())["rows"]["threads"]
        self.assertEqual((looks, row["core_to_core"]), (3, [152, 823, 823]))

    def test_without_peers_it_says_so_once(self):
        ran = self.run_all("--quick", "step/nano/f32|avx2/step/nano")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(ran.stderr, "bench: torch is missing, so rows have no peer; ./run deps --peers installs the peers\n")

    def test_a_program_that_fails_costs_its_row_only(self):
        self.program("benchmarks/bench_seq2seq", "echo no memory >&2; exit 3")
        ran = self.run_all("--quick", "seq2seq/f32|step/nano/f32")
        self.assertEqual(ran.returncode, 1)
        self.assertRegex(ran.stderr, "bench: seq2seq/f32: .*bench_seq2seq 2? ?.*ended with code 3: no memory")
        self.assertIn("| a step of `nano`, float32", ran.stdout)

    def test_a_regex_that_matches_nothing(self):
        ran = self.run_all("nonsense")
        self.assertEqual((ran.returncode, ran.stderr),
                         (1, "bench: no row matches 'nonsense'; ./run bench --list prints the names\n"))

    def test_a_busy_machine_is_refused(self):
        burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(machine.threads())]
        try:
            ran = self.run_all("step/nano/f32", anyway="")
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()
        self.assertEqual(ran.returncode, 1)
        self.assertRegex(ran.stderr, r"^bench: the processors are \d+% busy with other work; figures would be meaningless "
                                     r"\(HEED_BENCH_ANYWAY=1 measures anyway\)\n$")


if __name__ == "__main__":
    unittest.main()
