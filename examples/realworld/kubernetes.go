package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgo "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// kubernetes is a server like kubernetes-mcp-server. Its tools read their arguments themselves.
var kubernetes = subject{
	name:    "client-go",
	api:     kubernetesAPI{},
	serve:   serveKubernetes,
	good:    call{"pods_list", map[string]any{"namespace": "default"}},
	missing: call{"pods_list", map[string]any{}},
	wrong:   call{"pods_list", map[string]any{"namespace": "a/b"}},
	write:   call{"pods_run", map[string]any{"namespace": "default"}},
	own: map[string]want{
		// It waits for as long as Retry-After says, up to ten times, and takes a call into its timeout.
		"429, Retry-After: 120": {resilience.CodeTimeout, wait, false, 1},
		// It sends what reads again each second, up to ten times. The guard retries once what has broken off late.
		"the connection breaks off": {resilience.CodeConnectionLost, 0, true, 2 * 11},
	},
}

func serveKubernetes(ctx context.Context, via http.RoundTripper, guard *resilience.Guard) (*agent, error) {
	if guard != nil {
		via = resilience.Transport(via) // the first line
	}
	client, err := clientgo.NewForConfig(&rest.Config{Host: "http://cluster.example", Transport: via})
	if err != nil {
		return nil, err
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "kubernetes", Version: "1.0.0"}, nil)
	if guard != nil {
		gosdk.Protect(server, guard) // the second line
	}

	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	addTool(server, &mcp.Tool{Name: "pods_list", Annotations: readOnly},
		func(ctx context.Context, namespace string) (string, error) {
			pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return "", err
			}
			var names []string
			for _, pod := range pods.Items {
				names = append(names, pod.Name)
			}
			return fmt.Sprintf("%d pods: %s", len(names), strings.Join(names, ", ")), nil
		})
	addTool(server, &mcp.Tool{Name: "pods_run"},
		func(ctx context.Context, namespace string) (string, error) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}
			pod, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return "", err
			}
			return "started: " + pod.Name, nil
		})
	return connect(ctx, server)
}

// addTool adds a tool that works in a namespace, and tells of any failure by its text.
func addTool(server *mcp.Server, tool *mcp.Tool, work func(ctx context.Context, namespace string) (string, error)) {
	tool.InputSchema = json.RawMessage(`{"type": "object", "properties": {"namespace": {"type": "string"}}}`)
	server.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct{ Namespace string }
		if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
			return failed(err.Error()), nil
		}
		if in.Namespace == "" {
			return failed("missing argument namespace"), nil
		}

		out, err := work(ctx, in.Namespace)
		if err != nil {
			return failed(fmt.Sprintf("%s failed: %v", tool.Name, err)), nil
		}
		return text(out), nil
	})
}

type kubernetesAPI struct{}

func (kubernetesAPI) good(r *http.Request) string {
	pod := `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-0"}}`
	if r.Method == http.MethodPost {
		return pod
	}
	return `{"kind": "PodList", "apiVersion": "v1", "items": [` + pod + `]}`
}

func (kubernetesAPI) empty() string { return `{"kind": "PodList", "apiVersion": "v1", "items": []}` }

func (kubernetesAPI) bad(status int) string {
	return fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": %q, "code": %d}`,
		strings.ToLower(http.StatusText(status)), status)
}
