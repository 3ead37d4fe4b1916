module api_go

go 1.19
