# shellcheck shell=bash disable=SC2034
# Arguments for Megatron-LM 0.19. Source this file and pass "${MEGATRON_ARGS[@]}".
MEGATRON_ARGS=(
  # model
  --num-layers 118
  --hidden-size 8192
  --ffn-hidden-size 32768
  --num-attention-heads 64
  --group-query-attention
  --num-query-groups 8
  --kv-channels 128
  --disable-bias-linear
  --squared-relu
  --normalization RMSNorm
  --norm-epsilon 1e-05
  --untie-embeddings-and-output-weights
  --position-embedding-type none
  --max-position-embeddings 8192
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --vocab-size 131072
  --make-vocab-size-divisible-by 128
  --hybrid-layer-pattern 'M-|M-|M-|M*-|M-|M-|M-|M-|M*-M|-M-|M-M|-M*|-M-|M-M|-M-|M*-M|-M-|M-M|-M*-|M-M|-M-|M-M*|-M-|M-M|-M-|M*-M|-M-|M-M|-M*-|M-M|-M-|M-M|*-M|-M-|M-M|-M*-|M-M|-M-|M-M|-'
  --spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec
  --mamba-num-heads 256
  --mamba-head-dim 64
  --mamba-state-dim 256
  --mamba-num-groups 8
  # parallelism
  --tensor-model-parallel-size 4
  --pipeline-model-parallel-size 8
  --context-parallel-size 1
  --expert-model-parallel-size 1
  --expert-tensor-parallel-size 4
  --sequence-parallel
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --distributed-timeout-minutes 30
  # batch
  --seq-length 8192
  --micro-batch-size 1
  --global-batch-size 768
  --train-iters 1000
  --eval-iters 0
  --lr 0.0001
  --min-lr 1e-05
  --lr-decay-style cosine
  --lr-warmup-fraction 0.01
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --clip-grad 1.0
  # precision
  --bf16
  --transformer-impl transformer_engine
  --attention-backend auto
  # data
  --mock-data
  --tokenizer-type NullTokenizer
  --no-create-attention-mask-in-dataloader
  # checkpoint
  --ckpt-format torch_dist
  # log
  --log-interval 1
  --log-throughput
  --manual-gc
  --manual-gc-interval 100
)
