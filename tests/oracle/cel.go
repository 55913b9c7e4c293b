package main

import (
	"context"
	"encoding/json"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type celRequest struct {
	ID                       json.RawMessage                                           `json:"id"`
	Expression               string                                                    `json:"expression"`
	Driver                   string                                                    `json:"driver"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
	// Not in the protocol's minimum: turns the alpha gate DRAListTypeAttributes on.
	ListTypeAttributes bool `json:"listTypeAttributes"`
	// Not in the protocol's minimum: asks for the estimate that the API server checks at admission.
	Estimate bool `json:"estimate"`
}

type celResponse struct {
	ID           json.RawMessage `json:"id,omitempty"`
	Match        *bool           `json:"match"`
	CompileError string          `json:"compileError,omitempty"`
	MatchError   string          `json:"matchError,omitempty"`
	Cost         *uint64         `json:"cost,omitempty"`
	OutputType   string          `json:"outputType,omitempty"`
	MaxCost      *uint64         `json:"maxCost,omitempty"`
}

func answerCEL(line []byte) (response celResponse) {
	var request celRequest
	if err := json.Unmarshal(line, &request); err != nil {
		response.CompileError = "bad request: " + err.Error()
		return response
	}
	response.ID = request.ID
	// Some expressions make cel-go 0.26 panic at compile time. A panic is upstream's answer too: "refused".
	defer func() {
		if reason := recover(); reason != nil {
			response.CompileError = fmt.Sprintf("panic: %v", reason)
		}
	}()
	// ConsumableCapacity is on by default in 1.36, ListTypeAttributes is alpha.
	compiler := dracel.GetCompiler(dracel.Features{
		EnableConsumableCapacity: true,
		EnableListTypeAttributes: request.ListTypeAttributes,
	})
	result := compiler.CompileCELExpression(request.Expression, dracel.Options{DisableCostEstimation: !request.Estimate})
	if result.Error != nil {
		response.CompileError = result.Error.Error()
		return response
	}
	response.OutputType = result.OutputType.String()
	if request.Estimate {
		response.MaxCost = &result.MaxCost
	}
	match, details, err := result.DeviceMatches(context.Background(), dracel.Device{
		Driver:                   request.Driver,
		AllowMultipleAllocations: request.AllowMultipleAllocations,
		Attributes:               request.Attributes,
		Capacity:                 request.Capacity,
	})
	if details != nil {
		response.Cost = details.ActualCost()
	}
	if err != nil {
		response.MatchError = err.Error()
		return response
	}
	response.Match = &match
	return response
}
