package cmd

import (
	"context"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/metrics"
)

// metricsPeriod is how often metrics are written that change all the time. node_exporter is not asked more often.
const metricsPeriod = time.Second

// metricsFlags say where metrics are written.
type metricsFlags struct{ metricsFile string }

func (f *metricsFlags) flags() []cli.Flag {
	return []cli.Flag{textFlag(&f.metricsFile, categoryReport, "write metrics for node_exporter to `FILE`", "metrics", "")}
}

// meter measures a command and writes that to a file. Without a file, or if it is nil, it does nothing.
type meter struct {
	*metrics.Metrics
	path    string
	changed chan struct{} // has a value if there is something to write
}

// meter returns one for a command that begins now. It refuses a file that cannot be written.
func (f *metricsFlags) meter(kubelets bool) (*meter, error) {
	if f.metricsFile == "" {
		return &meter{}, nil
	}
	if err := metrics.Check(f.metricsFile); err != nil {
		return nil, usagef("--metrics: %w", err)
	}
	return &meter{metrics.New(time.Now(), kubelets), f.metricsFile, make(chan struct{}, 1)}, nil
}

func (m *meter) works() bool { return m != nil && m.path != "" }

// measure has the meter measure a run.
func (m *meter) measure(o *runonce.Options) {
	if !m.works() {
		return
	}
	progress := o.Progress
	o.Meter = m
	o.Progress = func(e runonce.Progress) {
		progress(e)
		m.Progress(e)
		m.change()
	}
}

// traced returns a function that gets the steps of pods, for the meter and for another one, which may be nil.
func (m *meter) traced(other func(types.UID, string, time.Time, time.Duration)) func(types.UID, string, time.Time, time.Duration) {
	if !m.works() {
		return other
	}
	return func(uid types.UID, name string, start time.Time, elapsed time.Duration) {
		if other != nil {
			other(uid, name, start, elapsed)
		}
		m.Step(uid, name, start, elapsed)
	}
}

// Restarted is called when containers were restarted, also those of a pod whose outcome stays.
func (m *meter) Restarted(pod *v1.Pod, times int) {
	m.Metrics.Restarted(pod, times)
	m.change()
}

func (m *meter) change() {
	select {
	case m.changed <- struct{}{}:
	default: // it is written soon anyway
	}
}

// concluded notes the results of a plan and the exit code that stands for them.
func (m *meter) concluded(results []runonce.Result, code int, took time.Duration) {
	if m.works() {
		m.Metrics.Concluded(results, code, took)
		m.change()
	}
}

// ended notes the exit code of a command that has failed before it had results.
func (m *meter) ended(code int, took time.Duration) {
	if m.works() {
		m.Metrics.Ended(code, took)
	}
}

// write writes the metrics.
func (m *meter) write() error {
	if !m.works() {
		return nil
	}
	return m.Write(m.path)
}

// keep writes the metrics when they have changed, until stop is called. failed gets what goes wrong, once until a write
// succeeds.
func (m *meter) keep(ctx context.Context, failed func(error)) (stop func()) {
	if !m.works() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var writes sync.WaitGroup
	writes.Go(func() {
		for good := true; ; {
			select {
			case <-m.changed:
			case <-ctx.Done():
				return
			}
			err := m.write()
			if err != nil && good {
				failed(err)
			}
			good = err == nil
			select {
			case <-time.After(metricsPeriod):
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		writes.Wait()
	}
}
