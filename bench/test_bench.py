"""Tests of the parts of the bench that compute: `python3 -m unittest discover bench`."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cpu  # noqa: E402
import load  # noqa: E402
import picture  # noqa: E402
import plan  # noqa: E402
import poolers  # noqa: E402
import prediction  # noqa: E402
import processes  # noqa: E402
import report  # noqa: E402
import stats  # noqa: E402


def run(number, workload, target, **fields):
    """A run as the result file keeps it."""
    return {"round": number, "workload": workload, "target": target, "failed": 0} | fields


class Stats(unittest.TestCase):
    def test_a_percentile_is_the_sample_at_its_rank(self):
        self.assertEqual(stats.percentile(list(range(1, 101)), 0.99), 99)
        self.assertEqual(stats.percentile(list(range(1, 102)), 0.99), 100)
        self.assertIsNone(stats.percentile([], 0.5))

    def test_ratios_pair_equal_rounds_only(self):
        self.assertEqual(stats.paired_ratios({0: 1.0, 1: 4.0, 2: 9.0}, {1: 2.0, 2: 3.0, 3: 1.0}), [2.0, 3.0])

    def test_an_interval_holds_the_median_and_is_repeatable(self):
        values = [0.9, 1.0, 1.1, 1.05, 0.95, 1.02, 0.97, 1.01, 0.99]
        low, high = stats.interval(values)
        self.assertTrue(0.9 <= low <= stats.median(values) <= high <= 1.1)
        self.assertEqual([low, high], stats.interval(values))
        self.assertIsNone(stats.interval([1.0, 2.0]))


class Load(unittest.TestCase):
    def test_only_transactions_between_the_readings_are_counted(self):
        recorder = cpu.Recorder(None)
        # Readings at 0, 1, ... 9 s; each second the process uses 10 ms and the machine 100 ms.
        names = [(7, "worker-0"), (8, "worker-1")]
        trees = lambda i: {"pooler": cpu.Spent(i * 0.01, i * 0.2, i * 0.6, i * 50), "database": cpu.Spent(i * 0.02)}  # noqa: E731
        recorder.readings = [
            (100.0 + i, {names[0]: i * 0.006, names[1]: i * 0.004}, i * 0.1, 0.0, trees(i)) for i in range(10)
        ]
        done = [(100.05 + i * 0.01, 1000 + i) for i in range(900)]
        result = load.evaluate(done, recorder, 102.05, 106.95, "")
        # From the reading at 103 to the one at 106.
        self.assertEqual(result["window_s"], 3.0)
        self.assertEqual(result["transactions"], 300)
        self.assertAlmostEqual(result["cpu_us"], 100.0)
        self.assertAlmostEqual(result["machine_cpu_us"], 1000.0)
        self.assertAlmostEqual(result["pooler_user_us"], 25.0)
        self.assertAlmostEqual(result["pooler_kernel_us"], 75.0)
        self.assertAlmostEqual(result["pooler_switches"], 0.5)
        self.assertAlmostEqual(result["both_us"], 300.0)
        self.assertAlmostEqual(result["worker_shares"]["worker-0"], 0.6)

    def test_a_log_line_without_a_time_is_no_transaction(self):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "log.1"), "w") as file:
                file.write("0 1 250 0 1700000000 500000\n0 2 failed 0 1700000000 600000\n1 1 300 0 1700000001 0 12\n1 2 300 0 17000")
            done = load.read_log(directory)
        self.assertEqual(done, [(1700000000.5, 250), (1700000001.0, 300)])

    def test_a_run_without_transactions_says_why(self):
        result = load.complain("pgbench: error: could not connect\n", "no transaction")
        self.assertEqual(result["complaint"], "pgbench: error: could not connect")
        self.assertNotIn("throughput", result)


class Report(unittest.TestCase):
    def test_a_goal_is_met_surely_only_with_its_whole_interval(self):
        goal = next(g for g in plan.goals() if (g.workload, g.field) == ("select-simple-50", "cpu_us"))
        self.assertEqual(goal.limit, 0.95)
        sure = report.verdict(goal, {"median": 0.9, "interval": [0.88, 0.94]})
        self.assertEqual(sure, {"met": True, "certain": True})
        unsure = report.verdict(goal, {"median": 0.94, "interval": [0.9, 0.97]})
        self.assertEqual(unsure, {"met": True, "certain": False})
        missed = report.verdict(goal, {"median": 1.2, "interval": [1.1, 1.3]})
        self.assertEqual(missed, {"met": False, "certain": True})

    def test_a_goal_without_data_has_no_verdict(self):
        self.assertTrue(all(entry["met"] is None for entry in report.judge([])))

    def test_the_tables_show_ratio_and_verdict(self):
        runs = []
        for number in range(9):
            runs.append(run(number, "select-simple-50", plan.US, throughput=220.0, cpu_us=9.0))
            runs.append(run(number, "select-simple-50", plan.RIVAL, throughput=200.0, cpu_us=10.0))
        result = {
            "date": "2026-01-01", "command": "bench/run.py", "reactor": "mio", "missing": ["haproxy"], "runs": runs,
            "machine": {"cpus": 2, "cpu": "X", "memory_gb": 1, "kernel": "6"}, "versions": {"PostgreSQL": "15"},
            "settings": {"rounds": 9, "seconds": 5, "warmup": 2, "scale": 50},
        }  # fmt: skip
        text = report.markdown(result)
        self.assertIn("| select-simple-50 | throughput / PgBouncer's | 1.100 [1.100, 1.100] | at least 1 | yes |", text)
        self.assertIn("Missing, so left out: haproxy", text)


class Picture(unittest.TestCase):
    def test_the_picture_of_the_manual_is_drawn_from_its_result_file(self):
        with open(picture.RESULT) as file:
            self.assertEqual(picture.drawn(json.load(file)), picture.PICTURE.read_text(), "draw it anew: make picture")


class Plan(unittest.TestCase):
    def test_every_target_of_the_plan_is_known(self):
        for workload in plan.workloads():
            self.assertLessEqual(set(workload.targets), set(poolers.KINDS), workload.name)

    def test_every_goal_belongs_to_a_measured_pair(self):
        measured = {w.name: set(w.targets) for w in plan.workloads()} | {plan.IDLE: {plan.US, plan.RIVAL}}
        for goal in plan.goals():
            self.assertIn(goal.ours, measured[goal.workload])
            self.assertTrue(not goal.theirs or goal.theirs in measured[goal.workload], goal)


class Cpu(unittest.TestCase):
    def test_our_own_threads_have_used_time(self):
        sum(range(1_000_000))
        self.assertGreater(sum(cpu.threads(os.getpid()).values()), 0)
        self.assertGreater(cpu.resident(os.getpid()), 1 << 20)

    def test_a_port_is_never_given_twice(self):
        ports = [processes.free_port() for _ in range(50)]
        self.assertEqual(len(set(ports)), 50)


class Prediction(unittest.TestCase):
    def figure(self, predicted, *measured):
        return prediction.compare(predicted, list(measured))

    def test_an_error_is_relative_to_the_median_and_stands_beside_the_spread(self):
        compared = self.figure(11.0, 9.0, 10.0, 12.0)
        self.assertEqual((compared["measured"], round(compared["error"], 6), round(compared["spread"], 6)), (10.0, 0.1, 0.3))
        self.assertIsNone(self.figure(None, 1.0)["error"])
        self.assertIsNone(self.figure(1.0, None, None)["error"])
        self.assertEqual(self.figure(0, 0, 0)["error"], 0.0)

    def test_goals_are_for_pools_with_room_and_not_finer_than_a_measurement(self):
        row = {"p50": self.figure(12.0, 10.0, 10.0), "p95": self.figure(11.0, 10.0, 10.0), "p99": self.figure(20.0, 10.0, 10.0)}
        self.assertEqual(prediction.missed(row | {"busy": 0.5}), ["p50", "p99"])
        self.assertEqual(prediction.missed(row | {"busy": 0.9}), [])
        noisy = {"p50": self.figure(12.0, 8.0, 10.0, 12.0), "p95": self.figure(10.0, 10.0), "p99": self.figure(10.0, 10.0)}
        self.assertEqual(prediction.missed(noisy | {"busy": 0.5}), [])

    def test_a_pool_is_as_busy_as_in_the_seconds_of_the_step(self):
        series = [{"at_s": at, "connections": 10, "in_use": used} for at, used in enumerate((1, 9, 4, 5))]
        self.assertEqual(prediction.busy({"series": series}, {"from_s": 2, "duration_s": 2}), 0.5)
        self.assertEqual(prediction.busy({"series": series}, {"duration_s": 4}), 0.9)
        self.assertIsNone(prediction.busy({"series": []}, {}))

    def test_the_server_alone_is_asked_the_same_through_the_same_relay(self):
        text = prediction.alone({"target": {"start": "redis", "commands": "PING\nPING\n"}, "fault": [{}]}, 5, ("fault",))
        self.assertIn("commands = '''\nPING\nPING\n'''", text)
        self.assertIn('kind = "delay"', text)
        self.assertNotIn("fault", prediction.alone({"target": {"start": "redis"}}, 5, ()))
        self.assertNotIn("burst", text)
        bursts = {"load": {"burst": 50, "idle": "4s"}, "target": {"start": "redis"}}
        text = prediction.alone(bursts, 5, ("poolhouse",))
        self.assertIn("burst = 20, at_once = 20", text)
        self.assertEqual(text.count("poolhouse = {}"), text.count("[[variant]]"))
        self.assertNotIn("poolhouse", prediction.alone(bursts, 5, ()))
        mixed = bursts | {"fault": [{}], "variant": [{"poolhouse": {}}, {}]}
        self.assertEqual(prediction.on_the_way(mixed), [("fault", "poolhouse"), ("fault",)])
        runs = prediction.apart({"service_ms": 1, "connect_ms": {"tcp": 1}}, {"service_ms": 2, "connect_ms": {"tcp": 2}})
        self.assertEqual(runs, [{"service_ms": 1, "connect_ms": {"tcp": None}}, {"service_ms": None, "connect_ms": {"tcp": 2}}])

    def test_a_load_is_planned_with_what_was_measured_in_its_own_way(self):
        loads = [{"rate": 9}, {"clients": 1}, {"clients": 1, "think": "10ms"}, {"clients": 9}, {"burst": 9}, {"burst": 9, "at_once": 1}]
        ways = ["spaced", "one after the other", "spaced", "without a pause", "a crowd", "a row"]
        self.assertEqual([prediction.comes(load) for load in loads], ways)
        self.assertEqual(set(ways), set(prediction.MEASURED))

    def test_a_crowd_tells_how_long_an_operation_needs_a_processor(self):
        # 20 at once on 2 processors of 0.2 ms each: they wait for 0 to 9 others, 0.9 ms on average.
        run = lambda ms: {"service_ms": {"mean": ms}}  # noqa: E731
        known = {"one": run(1.0), "a crowd": run(1.9)}
        self.assertAlmostEqual(prediction.processor_time(known, 2), 0.2)
        self.assertEqual(prediction.processor_time({"one": run(0.1), "a crowd": run(9.0)}, 2), 0.1)
        self.assertEqual([prediction.microseconds(ms) for ms in (0.2, -1)], ["200us", "1us"])


if __name__ == "__main__":
    unittest.main()
