package cputime

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// bufferSize holds some 10,000 messages.
const bufferSize = 64 << 20

// Sockets receive the kernel's reports. They have to be made in the machine's first network
// namespace; after that they work in any.
type Sockets struct {
	events, stats int
	family        uint16
}

// Open makes the sockets. It fails if the kernel has no taskstats or process events.
func Open() (s Sockets, err error) {
	family, err := netlink.GenlFamilyGet("TASKSTATS")
	if err != nil {
		return s, fmt.Errorf("looking for taskstats: %w", err)
	}
	s.family = family.ID
	if s.events, err = socket(unix.NETLINK_CONNECTOR, connectorProc); err != nil {
		return s, fmt.Errorf("opening a socket for process events: %w", err)
	}
	if s.stats, err = socket(unix.NETLINK_GENERIC, 0); err != nil {
		return s, errors.Join(fmt.Errorf("opening a socket for taskstats: %w", err), unix.Close(s.events))
	}
	return s, nil
}

func socket(protocol int, groups uint32) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferSize),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}),
	)
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Recorder collects what the kernel reports until Stop.
type Recorder struct {
	sockets  Sockets
	before   map[int]time.Duration // of processes that are older than the recording
	stop     chan struct{}
	readers  sync.WaitGroup
	forks    []fork
	exits    []exit
	eventErr error
	statsErr error
}

// Start starts a recording. Of the given processes, which run already, it counts what they use
// from now on.
func (s Sockets) Start(older ...int) (*Recorder, error) {
	before := map[int]time.Duration{}
	for _, pid := range older {
		cpu, err := of(pid)
		if err != nil {
			return nil, err
		}
		before[pid] = cpu
	}
	drain(s.events)
	drain(s.stats)
	err := send(s.events, syscall.NLMSG_DONE, subscription())
	if err == nil {
		err = s.cpuMask(statsRegisterMask)
	}
	if err != nil {
		return nil, err
	}
	r := &Recorder{sockets: s, before: before, stop: make(chan struct{})}
	r.readers.Go(func() {
		r.eventErr = r.read(s.events, func(data []byte) error {
			if f, ok := parseFork(data); ok {
				r.forks = append(r.forks, f)
			}
			return nil
		})
	})
	r.readers.Go(func() {
		r.statsErr = r.read(s.stats, func(data []byte) error {
			e, ok, err := parseExit(data)
			if ok {
				r.exits = append(r.exits, e)
			}
			return err
		})
	})
	return r, nil
}

// Stop ends the recording and returns the CPU time of the process, of those that Start was told
// of, and of the descendants of all. It fails if reports were lost.
func (r *Recorder) Stop(root int) ([]Usage, error) {
	var alive []living
	roots := append(slices.Collect(maps.Keys(r.before)), root)
	pids := family(roots, r.wait())
	for pid := range pids {
		if l, ok := lookAt(pid); ok {
			l.cpu -= r.before[pid]
			alive = append(alive, l)
		}
	}
	if err := errors.Join(r.eventErr, r.statsErr); err != nil {
		return nil, err
	}
	return split(roots, r.forks, r.exits, alive), nil
}

// wait reads what is left and returns the forks.
func (r *Recorder) wait() []fork {
	close(r.stop)
	r.readers.Wait()
	if err := r.sockets.cpuMask(statsDeregisterMask); err != nil {
		r.statsErr = errors.Join(r.statsErr, err)
	}
	return r.forks
}

func (r *Recorder) read(fd int, handle func([]byte) error) error {
	buffer := make([]byte, 64<<10)
	stopping := false
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			if stopping {
				return nil
			}
		case err != nil:
			return fmt.Errorf("receiving the kernel's reports: %w", err)
		default:
			if err := handleAll(buffer[:n], handle); err != nil {
				return err
			}
		}
		select {
		case <-r.stop:
			stopping = true
		default:
		}
	}
}

func handleAll(data []byte, handle func([]byte) error) error {
	messages, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		return fmt.Errorf("reading the kernel's reports: %w", err)
	}
	for _, m := range messages {
		if err := handle(m.Data); err != nil {
			return err
		}
	}
	return nil
}

// drain throws away what has arrived before.
func drain(fd int) {
	buffer := make([]byte, 64<<10)
	for {
		if _, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

func (s Sockets) cpuMask(attribute int) error {
	cpus, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return fmt.Errorf("reading the processors: %w", err)
	}
	text := nl.NewRtAttr(attribute, append([]byte(strings.TrimSpace(string(cpus))), 0))
	data := append((&nl.Genlmsg{Command: statsCommandGet, Version: 1}).Serialize(), text.Serialize()...)
	return send(s.stats, s.family, data)
}

func send(fd int, kind uint16, data []byte) error {
	m := nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Len: unix.SizeofNlMsghdr, Type: kind, Flags: unix.NLM_F_REQUEST}, RawData: data}
	if err := unix.Sendto(fd, m.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("asking for the kernel's reports: %w", err)
	}
	return nil
}

// lookAt returns a living process with the CPU time of all its threads.
func lookAt(pid int) (living, bool) {
	cpu, err := of(pid)
	if err != nil {
		return living{}, false
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return living{}, false
	}
	return living{pid, strings.TrimSpace(string(name)), cpu}, true
}

// of returns the CPU time of a living process with all threads that it ever had.
func of(pid int) (time.Duration, error) {
	const schedulerClock = 2 // CPUCLOCK_SCHED of the whole process
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedulerClock), &t); err != nil {
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
