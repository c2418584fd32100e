// Protogen generates the Go code of .proto files, for messages, gRPC and Connect, without
// protoc. The plugins are those that tools/go.mod pins.
//
//	go -C tools run ./protogen ../rpckey/internal/payv1/pay.proto
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

var plugins = []string{
	"google.golang.org/protobuf/cmd/protoc-gen-go",
	"google.golang.org/grpc/cmd/protoc-gen-go-grpc",
	"connectrpc.com/connect/cmd/protoc-gen-connect-go",
}

func main() {
	for _, file := range os.Args[1:] {
		if err := generate(context.Background(), filepath.Dir(file), filepath.Base(file)); err != nil {
			log.Fatalf("%s: %v", file, err)
		}
	}
}

// generate runs each plugin for a file and writes its output beside the file.
func generate(ctx context.Context, dir, file string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, file)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(compiled[0], map[string]bool{}),
	}
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		cmd := exec.CommandContext(ctx, "go", "tool", plugin)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		var response pluginpb.CodeGeneratorResponse
		if err := proto.Unmarshal(out, &response); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		if response.Error != nil {
			return fmt.Errorf("%s: %s", plugin, response.GetError())
		}
		for _, f := range response.GetFile() {
			path := filepath.Join(dir, filepath.FromSlash(f.GetName()))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// withImports returns a file after the files that it imports, each once.
func withImports(file protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[file.Path()] {
		return nil
	}
	seen[file.Path()] = true
	var all []*descriptorpb.FileDescriptorProto
	for i := range file.Imports().Len() {
		all = append(all, withImports(file.Imports().Get(i).FileDescriptor, seen)...)
	}
	return append(all, protodesc.ToFileDescriptorProto(file))
}
