package testcluster

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// serveDNS answers until the connection is closed.
func (c *Cluster) serveDNS(ctx context.Context, conn net.PacketConn) {
	packet := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(packet)
		if err != nil {
			return
		}
		var query dnsmessage.Message
		if err := query.Unpack(packet[:n]); err != nil || len(query.Questions) != 1 {
			continue
		}
		answer := c.answer(ctx, query)
		if body, err := answer.Pack(); err == nil {
			_, _ = conn.WriteTo(body, from)
		}
	}
}

// answer answers a question by the cluster IP of a Service: A records of SERVICE.NAMESPACE.svc.cluster.local.
func (c *Cluster) answer(ctx context.Context, query dnsmessage.Message) dnsmessage.Message {
	question := query.Questions[0]
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, Authoritative: true, RecursionDesired: query.RecursionDesired},
		Questions: query.Questions,
	}
	address, ok := c.clusterIP(ctx, strings.ToLower(question.Name.String()))
	if !ok {
		answer.RCode = dnsmessage.RCodeNameError
	} else if question.Type == dnsmessage.TypeA {
		answer.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 1},
			Body:   &dnsmessage.AResource{A: address.As4()},
		}}
	}
	return answer
}

// clusterIP returns the address that a name stands for.
func (c *Cluster) clusterIP(ctx context.Context, name string) (address netip.Addr, ok bool) {
	labels := strings.Split(strings.TrimSuffix(name, ".svc.cluster.local."), ".")
	if len(labels) != 2 {
		return address, false
	}
	text, err := c.Get(ctx, "/api/v1/namespaces/"+labels[1]+"/services/"+labels[0])
	if err != nil {
		return address, false
	}
	var service struct {
		Spec struct {
			ClusterIP string `json:"clusterIP"`
		} `json:"spec"`
	}
	if err := json.Unmarshal([]byte(text), &service); err != nil {
		return address, false
	}
	address, err = netip.ParseAddr(service.Spec.ClusterIP)
	return address, err == nil && address.Is4()
}
