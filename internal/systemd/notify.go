package systemd

import (
	"os"
	"strings"
)

// variable has the path of the service manager's socket, or "@" and an abstract name.
const variable = "NOTIFY_SOCKET"

// TakeNotify removes the socket of the service manager from the environment, where the children of this
// process could notify in its name, and returns a function that sends a message to it, as sd_notify(3)
// does: assignments in lines. It returns nil if this process is not to notify anyone. A message that
// cannot be sent is lost, since the service must not fail for it.
func TakeNotify() func(message string) {
	name := os.Getenv(variable)
	if os.Unsetenv(variable) != nil || !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@") || Check(name) != nil {
		return nil
	}
	conn, err := Open(name)
	if err != nil {
		return nil
	}
	return func(message string) { _ = conn.SendEncoded([]byte(message)) }
}
