package main

import (
	"fmt"
	"log/slog"

	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
)

// logger is virtual-kubelet's logger. What it calls information is for debugging here.
type logger struct{ *slog.Logger }

func (l logger) Debug(args ...any)                 { l.Logger.Debug(fmt.Sprint(args...)) }
func (l logger) Debugf(format string, args ...any) { l.Logger.Debug(fmt.Sprintf(format, args...)) }
func (l logger) Info(args ...any)                  { l.Debug(args...) }
func (l logger) Infof(format string, args ...any)  { l.Debugf(format, args...) }
func (l logger) Warn(args ...any)                  { l.Logger.Warn(fmt.Sprint(args...)) }
func (l logger) Warnf(format string, args ...any)  { l.Logger.Warn(fmt.Sprintf(format, args...)) }
func (l logger) Error(args ...any)                 { l.Logger.Error(fmt.Sprint(args...)) }
func (l logger) Errorf(format string, args ...any) { l.Logger.Error(fmt.Sprintf(format, args...)) }

// Fatal only logs: only virtual-kubelet's own program calls it.
func (l logger) Fatal(args ...any)                 { l.Error(args...) }
func (l logger) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

func (l logger) WithField(name string, value any) vklog.Logger { return logger{l.With(name, value)} }

func (l logger) WithFields(fields vklog.Fields) vklog.Logger {
	for name, value := range fields {
		l = logger{l.With(name, value)}
	}
	return l
}

func (l logger) WithError(err error) vklog.Logger { return l.WithField("error", err) }
