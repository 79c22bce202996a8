package testcluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Get returns what the API server answers to the admin.
func (c *Cluster) Get(ctx context.Context, path string) (string, error) {
	return c.request(ctx, http.MethodGet, path, "")
}

// Apply has the admin apply an object, in JSON or YAML, at its path.
func (c *Cluster) Apply(ctx context.Context, path, object string) error {
	_, err := c.request(ctx, http.MethodPatch, path+"?fieldManager=test", object)
	return err
}

// Post has the admin post an object, in JSON or YAML, and returns the answer.
func (c *Cluster) Post(ctx context.Context, path, object string) (string, error) {
	return c.request(ctx, http.MethodPost, path, object)
}

// Delete has the admin delete an object.
func (c *Cluster) Delete(ctx context.Context, path string) error {
	_, err := c.request(ctx, http.MethodDelete, path, "")
	return err
}

// request sends a request of the admin, and returns the answer.
func (c *Cluster) request(ctx context.Context, method, path, body string) (string, error) {
	client, err := c.httpClient()
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Server+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token(Admin))
	switch method {
	case http.MethodPatch:
		req.Header.Set("Content-Type", string(types.ApplyYAMLPatchType))
	case http.MethodPost:
		req.Header.Set("Content-Type", "application/yaml")
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return string(text), err
}
