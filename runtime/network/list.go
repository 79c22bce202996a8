package network

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// listTries is how often the kernel is asked again for a list that changed while it was read.
const listTries = 100

// Listed calls list, again while other programs change what it lists: the kernel then says that the
// list may be incomplete. On machines with other container engines interfaces come and go at any time.
func Listed[T any](list func() (T, error)) (all T, err error) {
	for range listTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
