package task

import (
	"net"
	"strings"
	"sync"
	"time"

	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

const (
	// publishFor is how long an event is sent again while containerd is away.
	publishFor   = 20 * time.Second
	publishRetry = 200 * time.Millisecond
	callTimeout  = 5 * time.Second
	maxEvents    = 2048
)

// publisher sends events to containerd, one after the other.
type publisher struct {
	namespace string
	address   string // of containerd's ttrpc socket

	mu     sync.Mutex
	queue  []event
	sent   chan struct{} // closed when the queue is empty; nil while it is
	stream uint32
}

type event struct {
	at      time.Time
	request *ttrpc.ForwardRequest
}

func newPublisher(namespace, address string) *publisher {
	return &publisher{namespace: namespace, address: strings.TrimPrefix(address, "unix://")}
}

// publish sends an event in the background, after those before it.
func (p *publisher) publish(topic, name string, m ttrpc.Message) {
	if p.address == "" {
		return
	}
	now := time.Now()
	e := event{now, ttrpc.Event{Topic: topic, Type: name, Message: m}.Forward(p.namespace, now)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) < maxEvents {
		p.queue = append(p.queue, e)
	}
	if p.sent == nil {
		p.sent = make(chan struct{})
		go p.send()
	}
}

// flush waits until all events are sent or given up, at most for the time given.
func (p *publisher) flush(most time.Duration) {
	p.mu.Lock()
	sent := p.sent
	p.mu.Unlock()
	if sent == nil {
		return
	}
	select {
	case <-sent:
	case <-time.After(most):
	}
}

func (p *publisher) send() {
	var conn net.Conn
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			close(p.sent)
			p.queue, p.sent = nil, nil
			p.mu.Unlock()
			break
		}
		e := p.queue[0]
		p.mu.Unlock()
		if conn = p.try(conn, e.request); conn == nil && time.Since(e.at) < publishFor {
			time.Sleep(publishRetry)
			continue
		}
		p.mu.Lock()
		p.queue = p.queue[1:]
		p.mu.Unlock()
	}
	if conn != nil {
		_ = conn.Close()
	}
}

// try sends an event, and returns the connection, nil after an error.
func (p *publisher) try(conn net.Conn, r *ttrpc.ForwardRequest) net.Conn {
	if conn == nil {
		var err error
		p.stream = 1
		// A local connection is made at once, or not at all.
		if conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: p.address, Net: "unix"}); err != nil {
			return nil
		}
	}
	err := conn.SetDeadline(time.Now().Add(callTimeout))
	if err == nil {
		err = ttrpc.Call(conn, p.stream, "containerd.services.events.ttrpc.v1.Events", "Forward", r)
	}
	p.stream += 2
	if err != nil {
		_ = conn.Close()
		return nil
	}
	return conn
}
