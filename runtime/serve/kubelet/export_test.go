package kubelet

import (
	"net/url"
	"time"

	"github.com/runonce/runonce/runtime/logs"
)

// LogOptions are what of a log is asked for.
type LogOptions struct {
	logs.Options
	Limit int64
}

// ParseLogOptions reads the parameters of a request.
func ParseLogOptions(q url.Values, now time.Time) (LogOptions, error) {
	r, err := parseLogRequest(q, now)
	return LogOptions{r.Options, r.limit}, err
}
