// Package sdnotify tells the service manager how far this process is, as sd_notify(3) does. That of
// go-systemd reads the socket's name from the environment for every message; here it is taken out
// of the environment first, so that no child can notify in the name of this process.
package sdnotify

import (
	"net"
	"os"
	"strings"
	"time"
)

// variable has the path of the socket, or "@" and an abstract name.
const variable = "NOTIFY_SOCKET"

// patience is how long a message may take that the service manager has no place for.
const patience = time.Second

// Take removes the socket from the environment and returns a function that sends a message to it:
// assignments in lines. It returns nil if this process is not to notify anyone. A message that
// cannot be sent is lost, since the service must not fail for it.
func Take() func(message string) {
	name := os.Getenv(variable)
	if os.Unsetenv(variable) != nil || !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@") {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return nil
	}
	return func(message string) {
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		_, _ = conn.Write([]byte(message))
	}
}
